//! When to ask again.

use std::time::{Duration, SystemTime};

use super::failure::Failure;
use crate::limits::RETRY_PAUSE_MS_MAX;

/// Pause before the first repetition; each further one doubles it.
const FIRST_PAUSE_MS: u64 = 500;

/// What is to be done about a failed attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Ask again after this pause.
    Pause(Duration),
    /// Say that it failed.
    GiveUp,
}

/// Decides. `attempt` is the one that failed, from 1; `jitter` is between 0 and 1.
pub(super) fn next(failure: &Failure, attempt: u32, attempts: u32, jitter: f64) -> Next {
    if attempt >= attempts || !failure.class.is_retryable() {
        return Next::GiveUp;
    }
    let pause = match failure.retry_after_ms {
        // Whoever asks for a longer pause than anybody waits is not asked again.
        Some(ms) if ms > RETRY_PAUSE_MS_MAX => return Next::GiveUp,
        Some(ms) => Duration::from_millis(ms),
        None => {
            let full =
                FIRST_PAUSE_MS.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(RETRY_PAUSE_MS_MAX);
            // Half of it is fixed, so that a pause is one; the other half keeps clients apart.
            Duration::from_millis(full).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
        }
    };
    Next::Pause(pause)
}

/// The pause that a server's headers ask for: `retry-after-ms`, or `Retry-After` in seconds or as a
/// date.
pub(super) fn retry_after_ms(header: impl Fn(&str) -> Option<String>, now: SystemTime) -> Option<u64> {
    let milliseconds = header("retry-after-ms").and_then(|text| positive(&text));
    let seconds = || header("retry-after").and_then(|text| positive(&text)).map(|seconds| seconds * 1_000.0);
    let date = || {
        let date = httpdate::parse_http_date(header("retry-after")?.trim()).ok()?;
        // A date that has passed is now.
        let left = date.duration_since(now).unwrap_or_default();
        Some(left.as_secs_f64() * 1_000.0)
    };
    let pause = milliseconds.or_else(seconds).or_else(date)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float casts to the nearest u64"
    )]
    Some(pause.ceil() as u64)
}

fn positive(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)
}

/// A number between 0 and 1 that differs between processes and moments.
pub(super) fn jitter() -> f64 {
    f64::from(getrandom::u32().unwrap_or(u32::MAX / 2)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::FailureClass;

    fn failure(class: FailureClass, retry_after_ms: Option<u64>) -> Failure {
        Failure { retry_after_ms, ..Failure::new(class, "") }
    }

    #[test]
    fn the_pause_grows_and_has_an_end() {
        let pause = |attempt| next(&failure(FailureClass::Overloaded, None), attempt, 99, 1.0);

        assert_eq!(pause(1), Next::Pause(Duration::from_millis(500)));
        assert_eq!(pause(3), Next::Pause(Duration::from_millis(2_000)));
        assert_eq!(pause(40), Next::Pause(Duration::from_millis(RETRY_PAUSE_MS_MAX)));
        let half = next(&failure(FailureClass::Overloaded, None), 1, 99, 0.0);
        assert_eq!(half, Next::Pause(Duration::from_millis(250)));
    }

    #[test]
    fn what_cannot_help_is_not_tried() {
        let once = |class, after| next(&failure(class, after), 1, 5, 0.5);

        assert_eq!(once(FailureClass::Unauthorized, None), Next::GiveUp);
        assert_eq!(once(FailureClass::QuotaExhausted, Some(1)), Next::GiveUp);
        assert_eq!(next(&failure(FailureClass::Overloaded, None), 5, 5, 0.5), Next::GiveUp);
        assert_eq!(once(FailureClass::RateLimited, Some(RETRY_PAUSE_MS_MAX + 1)), Next::GiveUp);
        let longest = Duration::from_millis(RETRY_PAUSE_MS_MAX);
        assert_eq!(once(FailureClass::RateLimited, Some(RETRY_PAUSE_MS_MAX)), Next::Pause(longest));
    }

    #[test]
    fn every_form_of_the_header_is_read() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let read = |name: &'static str, value: &'static str| {
            retry_after_ms(move |asked| (asked == name).then(|| value.to_owned()), now)
        };

        assert_eq!(read("retry-after", "4"), Some(4_000));
        assert_eq!(read("retry-after-ms", "3890"), Some(3_890));
        assert_eq!(read("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT"), Some(10_000));
        assert_eq!(read("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        assert_eq!(read("retry-after", "soon"), None);
        assert_eq!(read("retry-after", "-3"), None);
    }
}
