// What jobs draw, told to NVML's stand-in. Joules are only ever added, so its counter never falls.
#include "power.h"

#include <algorithm>

#include "rehearsal.h"

namespace rehearsal {
void draw(double from, double to, double watts) {
  uint32_t* bins = rehearsal_bins();
  if (!bins) return;
  for (auto bin = static_cast<uint64_t>(from / REHEARSAL_BIN_SECONDS); bin * REHEARSAL_BIN_SECONDS < to; bin++) {
    double begins = bin * REHEARSAL_BIN_SECONDS;
    double seconds = std::min(to, begins + REHEARSAL_BIN_SECONDS) - std::max(from, begins);
    __atomic_fetch_add(&bins[bin % REHEARSAL_BINS], static_cast<uint32_t>(std::max(0.0, seconds) * watts * 1e6),
                       __ATOMIC_RELAXED);
  }
}
}  // namespace rehearsal
