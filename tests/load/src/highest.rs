//! The highest rate that is held, by trying.

/// Where trying ends: no server here holds more a second, or is asked for less.
const MOST: f64 = 1e6;
const LEAST: f64 = 1.0;
/// How near the highest rate that was held comes to the lowest that was not.
const NEAR: f64 = 1.03;

/// The highest rate for which `attempt` has something to show, and what that is: doubled or halved from `first` on until
/// one is held and one is not, then halved between the two. Nothing where not even one a second is held.
pub fn highest<T>(
    first: f64,
    mut attempt: impl FnMut(f64) -> anyhow::Result<Option<T>>,
) -> anyhow::Result<Option<(f64, T)>> {
    let (mut held, mut rate, mut missed) = (None, first, MOST);
    while missed == MOST && rate < MOST {
        match attempt(rate)? {
            Some(shown) => (held, rate) = (Some((rate, shown)), rate * 2.0),
            None => missed = rate,
        }
    }
    while held.is_none() && rate / 2.0 >= LEAST {
        rate /= 2.0;
        match attempt(rate)? {
            Some(shown) => held = Some((rate, shown)),
            None => missed = rate,
        }
    }
    let Some((mut low, mut best)) = held else { return Ok(None) };
    while missed / low > NEAR {
        let middle = (low * missed).sqrt();
        match attempt(middle)? {
            Some(shown) => (low, best) = (middle, shown),
            None => missed = middle,
        }
    }
    Ok(Some((low, best)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is found where rates up to `limit` are held, and after how many attempts.
    fn found(first: f64, limit: f64) -> (Option<f64>, usize) {
        let mut attempts = 0;
        let found = highest(first, |rate| {
            attempts += 1;
            Ok((rate <= limit).then_some(()))
        });
        (found.unwrap().map(|(rate, ())| rate), attempts)
    }

    #[test]
    fn who_holds_nothing_has_no_rate() {
        assert_eq!(found(1000.0, 0.5).0, None);
    }

    #[test]
    fn the_first_failure_ends_it() {
        let outcome = highest::<()>(1.0, |_| anyhow::bail!("no network"));
        assert!(outcome.is_err());
    }

    proptest! {
        #[test]
        fn what_is_found_is_held_and_little_more_is_not(first in 1.0..1e5, limit in 2.0..5e5) {
            let (rate, attempts) = found(first, limit);
            let rate = rate.unwrap();
            prop_assert!(rate <= limit && rate * NEAR >= limit, "{rate} of {limit}");
            prop_assert!(attempts <= 30, "{attempts} attempts");
        }
    }
}
