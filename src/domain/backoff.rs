//! How long a failed attempt waits. Pure; Postgres adds the jitter (half of the ceiling to all of it), so one clock and one dice decide.

/// The first wait, in milliseconds.
pub const BASE_MS: i64 = 500;
/// No wait is longer, in milliseconds.
pub const CAP_MS: i64 = 300_000;

/// The longest wait after attempt number `attempt` (counted from 1): BASE · 2^(attempt−1), at most CAP.
#[must_use]
pub fn ceiling_ms(attempt: i32) -> i64 {
    let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(0).min(20);
    BASE_MS.saturating_mul(1 << doublings).min(CAP_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_the_base_to_the_cap_and_never_overflow() {
        let series: Vec<_> = (1..=12).map(ceiling_ms).collect();
        assert_eq!(series, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 300_000, 300_000]);
        assert_eq!([i32::MIN, 0, 1].map(ceiling_ms), [BASE_MS; 3]);
        assert_eq!(ceiling_ms(i32::MAX), CAP_MS);
    }
}
