use std::time::Duration;

use proptest::prelude::*;

use crate::supervisor::Backoff;

#[test]
fn the_first_restart_comes_at_once_and_the_next_ones_wait_longer_and_longer() {
    let backoff =
        Backoff::new(Duration::from_millis(100), Duration::from_millis(1_000)).jitter(0.0);
    let pauses: Vec<u128> = (0..7).map(|before| backoff.pause(before, 0.5).as_millis()).collect();
    assert_eq!(pauses, [0, 100, 200, 400, 800, 1_000, 1_000]);
}

proptest! {
    #[test]
    fn a_pause_stays_within_its_jitter_and_never_shrinks_with_failures(
        first in 0..10_000_u64,
        max in 0..100_000_u64,
        factor in 0.0..10.0_f64,
        jitter in 0.0..=1.0_f64,
        before in 0..u32::MAX,
        random in 0.0..1.0_f64,
    ) {
        let (first, max) = (Duration::from_millis(first), Duration::from_millis(max));
        let backoff = Backoff::new(first, max).factor(factor).jitter(jitter);
        let pause = backoff.pause(before, random);
        let full = backoff.pause(before, 0.0);
        prop_assert!(pause <= full && full <= max);
        prop_assert!(pause.as_secs_f64() >= full.as_secs_f64() * (1.0 - jitter) - 1e-6);
        prop_assert!(backoff.pause(before.saturating_add(1), random) >= pause);
        if jitter > 0.1 && full > Duration::from_millis(1) {
            prop_assert!(backoff.pause(before, 0.9) < full);
        }
    }

    #[test]
    fn nonsense_never_panics(factor: f64, jitter: f64, before: u32, random in 0.0..1.0_f64) {
        let max = Duration::from_secs(1);
        let backoff = Backoff::new(Duration::MAX, max).factor(factor).jitter(jitter);
        prop_assert!(backoff.pause(before, random) <= max);
    }
}
