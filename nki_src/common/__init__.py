"""What several kernels share; an artifact ships the part of it that its kernel imports."""
