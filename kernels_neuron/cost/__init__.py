"""Time: the timeline of a trace, the roofline bound, the unfused baseline, and what a profile says about them."""
