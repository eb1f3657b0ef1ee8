//! Time as the log has it: milliseconds since the Unix epoch, shown as RFC 3339 with `Z`.

use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock, in milliseconds since the Unix epoch; zero on a clock set before it.
pub fn now_ms() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

/// `2026-09-13T18:59:00Z`, or `None` where there is no usable time (not positive, or past the
/// calendar's end): zero in the log means "unknown", never 1970.
pub fn rfc3339(at_ms: i64) -> Option<String> {
    if at_ms <= 0 {
        return None;
    }
    let timestamp = jiff::Timestamp::from_second(at_ms.div_euclid(1_000)).ok()?;
    Some(timestamp.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_in_whole_seconds_with_z() {
        assert_eq!(rfc3339(1_789_325_940_999).as_deref(), Some("2026-09-13T18:59:00Z"));
    }

    #[test]
    fn an_unusable_time_is_not_shown_as_1970() {
        assert_eq!((rfc3339(0), rfc3339(-5), rfc3339(i64::MAX)), (None, None, None));
    }
}
