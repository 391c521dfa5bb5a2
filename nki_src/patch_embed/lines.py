"""How the contraction of a patch embedding is spread over partitions: the lines of a patch, each several times."""

# of SBUF, on every chip
PARTITIONS = 128


def copies_of(lines, run):
    """How often each of `lines` lines of `run` elements lies on partitions, so that few lines leave none idle."""
    return max(n for n in range(1, run + 1) if run % n == 0 and n * lines <= PARTITIONS)


def ordered(matrix, lines, run):
    """weight [N, K], a torch tensor, as [K, N] in the order of the contraction: element, copy of a line, line."""
    copies = copies_of(lines, run)
    columns = matrix.shape[0]
    parts = matrix.reshape(columns, lines, copies, run // copies)
    return parts.permute(3, 2, 1, 0).reshape(-1, columns).contiguous()
