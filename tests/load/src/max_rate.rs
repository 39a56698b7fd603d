//! Searches for the highest rate that a server sustains.

/// Limits of the search, in operations per second.
const MAX_RATE: f64 = 1e6;
const MIN_RATE: f64 = 1.0;
/// The search ends once the lowest failed rate is at most this multiple of the highest sustained rate.
const PRECISION: f64 = 1.03;

/// Returns the highest rate for which `attempt` returns a result, and that result. The rate is doubled or halved from
/// `first` on until one attempt succeeds and one does not, then bisected. Returns `None` if no rate is sustained.
pub fn max_rate<T>(
    first: f64,
    mut attempt: impl FnMut(f64) -> anyhow::Result<Option<T>>,
) -> anyhow::Result<Option<(f64, T)>> {
    let (mut sustained, mut rate, mut failed) = (None, first, MAX_RATE);
    while failed == MAX_RATE && rate < MAX_RATE {
        match attempt(rate)? {
            Some(result) => (sustained, rate) = (Some((rate, result)), rate * 2.0),
            None => failed = rate,
        }
    }
    while sustained.is_none() && rate / 2.0 >= MIN_RATE {
        rate /= 2.0;
        match attempt(rate)? {
            Some(result) => sustained = Some((rate, result)),
            None => failed = rate,
        }
    }
    let Some((mut low, mut best)) = sustained else { return Ok(None) };
    while failed / low > PRECISION {
        let middle = (low * failed).sqrt();
        match attempt(middle)? {
            Some(result) => (low, best) = (middle, result),
            None => failed = middle,
        }
    }
    Ok(Some((low, best)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the rate that the search finds if rates up to `limit` are sustained, and the number of attempts.
    fn search(first: f64, limit: f64) -> (Option<f64>, usize) {
        let mut attempts = 0;
        let found = max_rate(first, |rate| {
            attempts += 1;
            Ok((rate <= limit).then_some(()))
        });
        (found.unwrap().map(|(rate, ())| rate), attempts)
    }

    #[test]
    fn there_is_no_result_if_no_rate_is_sustained() {
        assert_eq!(search(1000.0, 0.5).0, None);
    }

    #[test]
    fn the_first_error_ends_the_search() {
        let outcome = max_rate::<()>(1.0, |_| anyhow::bail!("no network"));
        assert!(outcome.is_err());
    }

    proptest! {
        #[test]
        fn the_found_rate_is_sustained_and_a_slightly_higher_one_is_not(first in 1.0..1e5, limit in 2.0..5e5) {
            let (rate, attempts) = search(first, limit);
            let rate = rate.unwrap();
            prop_assert!(rate <= limit && rate * PRECISION >= limit, "{rate} of {limit}");
            prop_assert!(attempts <= 30, "{attempts} attempts");
        }
    }
}
