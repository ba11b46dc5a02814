// The evaluator: `eval.out MODE CASES` writes result lines to the descriptor in $POPCORN_FD.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "reference.cuh"
#include "submission.cuh"

#ifndef CHECKED
#error the defines of task.yml are missing
#endif

struct Case {
    int size, seed;
};

static void check(cudaError_t error) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
        std::exit(1);
    }
}

static int number(const std::string& line, const char* name) {
    auto at = line.find(name);
    return at == std::string::npos ? 0 : std::atoi(line.c_str() + at + std::strlen(name) + 1);
}

static std::vector<Case> read_cases(const char* path) {
    std::vector<Case> cases;
    std::FILE* file = std::fopen(path, "r");
    char line[256];
    while (file && std::fgets(line, sizeof line, file))
        if (std::strchr(line, ':')) cases.push_back({number(line, "size"), number(line, "seed")});
    if (file) std::fclose(file);
    return cases;
}

// One call. Returns how many elements are wrong, and the time in nanoseconds.
static int run(const Case& at, double& ns) {
    std::vector<float> host(at.size);
    for (int i = 0; i < at.size; i++) host[i] = input_at(at.seed, i);
    float *in, *out;
    check(cudaMalloc(&in, at.size * sizeof(float)));
    check(cudaMalloc(&out, at.size * sizeof(float)));
    check(cudaMemcpy(in, host.data(), at.size * sizeof(float), cudaMemcpyHostToDevice));
    cudaEvent_t start, end;
    check(cudaEventCreate(&start));
    check(cudaEventCreate(&end));
    check(cudaEventRecord(start));
    scale<<<(at.size + 127) / 128, 128>>>(out, in, at.size);
    check(cudaGetLastError());
    check(cudaEventRecord(end));
    check(cudaMemcpy(host.data(), out, at.size * sizeof(float), cudaMemcpyDeviceToHost));
    float ms;
    check(cudaEventElapsedTime(&ms, start, end));
    ns = 1e6 * ms;
    check(cudaFree(in));
    check(cudaFree(out));
    int wrong = 0;
    for (int i = 0; i < at.size; i++) wrong += host[i] != expected_at(at.seed, i);
    return wrong;
}

int main(int argc, char** argv) {
    const char* fd = std::getenv("POPCORN_FD");
    if (argc != 3 || !fd) return 111;
    std::FILE* lines = fdopen(std::atoi(fd), "w");
    const bool is_test = !std::strcmp(argv[1], "test");
    auto cases = read_cases(argv[2]);
    bool passed = true;
    std::fprintf(lines, "%s-count: %zu\n", is_test ? "test" : "benchmark", cases.size());
    for (size_t index = 0; index < cases.size(); index++) {
        double ns = 0;
        int wrong = run(cases[index], ns);
        passed = passed && !wrong;
        const char* kind = is_test ? "test" : "benchmark";
        std::fprintf(lines, "%s.%zu.spec: size: %d; seed: %d\n", kind, index, cases[index].size, cases[index].seed);
        if (wrong || is_test) std::fprintf(lines, "%s.%zu.status: %s\n", kind, index, wrong ? "fail" : "pass");
        if (wrong) std::fprintf(lines, "%s.%zu.error: %d elements differ\n", kind, index, wrong);
        if (wrong || is_test) continue;
        std::vector<double> times;
        for (int repeat = 0; repeat < 20; repeat++) {
            run(cases[index], ns);
            times.push_back(ns);
        }
        double mean = 0, square = 0;
        for (double time : times) mean += time / times.size();
        for (double time : times) square += (time - mean) * (time - mean);
        const double std_ns = std::sqrt(square / (times.size() - 1));
        std::fprintf(lines, "benchmark.%zu.runs: %zu\n", index, times.size());
        std::fprintf(lines, "benchmark.%zu.mean: %.1f\n", index, mean);
        std::fprintf(lines, "benchmark.%zu.std: %.1f\n", index, std_ns);
        std::fprintf(lines, "benchmark.%zu.err: %.1f\n", index, std_ns / std::sqrt((double)times.size()));
        std::fprintf(lines, "benchmark.%zu.best: %.1f\n", index, *std::min_element(times.begin(), times.end()));
        std::fprintf(lines, "benchmark.%zu.worst: %.1f\n", index, *std::max_element(times.begin(), times.end()));
    }
    std::fprintf(lines, "check: %s\n", passed ? "pass" : "fail");
    std::fclose(lines);
    return passed ? 0 : 112;
}
