#!/bin/sh
# Makes ./solver with the system's compiler. Without one, submission.py does with numpy.
compiler=$(command -v g++ || command -v clang++ || command -v c++) || { echo "no C++ compiler: submission.py does without"; exit 0; }
exec "$compiler" -std=c++20 -O3 -march=native -pthread -o solver main.cpp
