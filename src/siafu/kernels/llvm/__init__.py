"""Inner loops that kernels are made of: LLVM code for tiles of columns, vectors and elementary functions."""
