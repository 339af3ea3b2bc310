//! The time that a simulator takes if none is given to it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since the Unix epoch.
#[expect(
    clippy::disallowed_methods,
    reason = "the simulator stands beside the layers and knows none of their clocks"
)]
pub(super) fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
