"""In which order the pieces of several jobs are issued, so that no engine waits while another job has work for it."""


def interleave(*jobs):
    """The units of all jobs, each job's in order, spread evenly over one another; where two tie, the first job's first.

    jobs  lists of units, functions without arguments
    """
    placed = [((i + 0.5) / len(units), job, unit) for job, units in enumerate(jobs) for i, unit in enumerate(units)]
    return [unit for _, _, unit in sorted(placed, key=lambda entry: entry[:2])]
