/* The peer that coll-perf is compared with: the same collective of the same bytes by an MPI library, timed in the same
 * way. Prints microseconds of one call, of the slowest rank.
 *
 *   mpirun -n RANKS coll-vs-mpi alltoall|all_reduce BYTES WARMUP ITERATIONS
 *
 * BYTES is the whole buffer of a rank, as in coll-perf; MPI counts an alltoall for each peer.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void call(int reduces, const void *from, void *to, size_t bytes, int ranks)
{
    if (reduces)
        MPI_Allreduce(from, to, (int)(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else
        MPI_Alltoall(from, (int)(bytes / ranks), MPI_CHAR, to, (int)(bytes / ranks), MPI_CHAR, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 5) {
        fprintf(stderr, "usage: %s alltoall|all_reduce BYTES WARMUP ITERATIONS\n", argv[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int reduces = strcmp(argv[1], "all_reduce") == 0;
    size_t bytes = strtoull(argv[2], NULL, 10);
    int warmup = atoi(argv[3]), iterations = atoi(argv[4]);
    float *from = NULL, *to = NULL;
    if (posix_memalign((void **)&from, 4096, bytes) || posix_memalign((void **)&to, 4096, bytes))
        MPI_Abort(MPI_COMM_WORLD, 3);
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        from[i] = (float)(rank + 1);
        to[i] = -1;
    }

    for (int i = 0; i < warmup; i++)
        call(reduces, from, to, bytes, ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int i = 0; i < iterations; i++)
        call(reduces, from, to, bytes, ranks);
    double mine = (MPI_Wtime() - begin) / iterations, slowest;
    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);

    size_t block = bytes / sizeof(float) / ranks;
    for (size_t i = 0; i < block * ranks; i++) {
        float expected = reduces ? (float)(ranks * (ranks + 1) / 2) : (float)(i / block + 1);
        if (to[i] != expected) {
            fprintf(stderr, "rank %d: element %zu is %g and not %g\n", rank, i, to[i], expected);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    if (rank == 0)
        printf("%.3f\n", slowest * 1e6);
    MPI_Finalize();
    return 0;
}
