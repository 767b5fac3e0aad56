/* MPI_Allreduce of floats: mpirun -n NODES all_reduce_mpi BYTES EACH SAMPLES. Rank 0 prints a line of JSON. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc != 4)
        MPI_Abort(MPI_COMM_WORLD, 2);
    size_t count = strtoul(argv[1], NULL, 10) / sizeof(float);
    int each = atoi(argv[2]), samples = atoi(argv[3]), rank, major, minor, length;
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    float *data = malloc(count * sizeof(float) + 1);
    double *times = malloc((size_t)samples * sizeof(double));
    for (size_t i = 0; i < count; i++)
        data[i] = 1.0f;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    /* The first sample warms up. */
    for (int sample = -1; sample < samples; sample++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        for (int i = 0; i < each; i++)
            MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
        if (sample >= 0)
            times[sample] = (MPI_Wtime() - start) / each;
    }
    MPI_Get_version(&major, &minor);
    MPI_Get_library_version(version, &length);
    for (char *c = version; *c; c++)
        if (*c == ',' || *c == '"')
            *c = 0;
    if (rank == 0) {
        qsort(times, (size_t)samples, sizeof(double), compare);
        printf("{\"seconds\": %.9f, \"version\": \"%s\"}\n", times[samples / 2], version);
    }
    MPI_Finalize();
    return 0;
}
