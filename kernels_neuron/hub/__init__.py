"""Hub repos of kernels: the registry's store and server, and publishing to it or to the Hugging Face Hub."""
