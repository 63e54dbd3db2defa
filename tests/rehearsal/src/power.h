/* The draw of the simulated device, shared by the processes of a rehearsal: microjoules by millisecond of
 * CLOCK_MONOTONIC, beside the idle draw. Jobs add, NVML reads. A file of 512 MiB of which only what is written takes
 * room; after 37 hours it would begin anew on top of what is there. */
#pragma once
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define REHEARSAL_BINS (1UL << 27)
#define REHEARSAL_BIN_SECONDS 1e-3

/* The bins of the file that CUDA_REHEARSAL_POWER names; NULL where it names none. */
static inline uint32_t* rehearsal_bins(void) {
  static uint32_t* bins;
  const char* path = getenv("CUDA_REHEARSAL_POWER");
  if (bins || !path) return bins;
  int file = open(path, O_RDWR);
  if (file < 0 || ftruncate(file, REHEARSAL_BINS * sizeof *bins)) abort();
  void* made = mmap(NULL, REHEARSAL_BINS * sizeof *bins, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (made == MAP_FAILED) abort();
  close(file);
  return bins = (uint32_t*)made;
}
