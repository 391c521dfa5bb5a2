"""A NeuronCore in numpy: memories, engines and the instruction table; strict where the chip is strict."""
