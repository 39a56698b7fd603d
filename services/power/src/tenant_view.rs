//! The part of a power job that callers of its tenant see: no text that quotes the BMC, which is the site's.

use tinwright::power::v1::PowerJob;
use tinwright::power::v1::power_job::State;
use tinwright::secret::Secrets as _;

/// Returns what a tenant sees of `job`.
pub fn view(job: PowerJob) -> PowerJob {
    let state_reason = state_reason(&job).to_owned();
    PowerJob { state_reason, downgrades: Vec::new(), ..job.without_secrets() }
}

/// Returns the reason of the state of `job` without texts that quote the BMC. Before its start a job has none.
pub fn state_reason(job: &PowerJob) -> &str {
    match job.state() {
        State::Failed if job.start_time.is_none() => &job.state_reason,
        State::Failed => "failed: the operators of the site see the reason in the job",
        State::Pending | State::Cancelled => &job.state_reason,
        State::Running if job.overdue => "running for longer than is normal",
        State::Unspecified | State::Running | State::Success => "",
    }
}

#[cfg(test)]
mod tests {
    use store::records::Kind as _;

    use super::*;
    use crate::stored::Job;

    const QUOTE: &str = "https://192.0.2.1: 401";

    fn job(state: State) -> PowerJob {
        PowerJob {
            state: state.into(),
            state_reason: QUOTE.into(),
            downgrades: vec![QUOTE.into()],
            start_time: Some(prost_types::Timestamp::default()),
            ..PowerJob::default()
        }
    }

    #[test]
    fn neither_the_view_of_a_tenant_nor_an_event_of_its_job_quotes_the_bmc() {
        for state in [State::Running, State::Failed, State::Success] {
            for overdue in [false, true] {
                let job = PowerJob { tenant: "acme".into(), overdue, ..job(state) };
                assert!(!Job::event_reason(&job).contains("192.0.2.1"), "{job:?}");
                let shown = view(job);
                assert!(!format!("{shown:?}").contains("192.0.2.1"), "{shown:?}");
            }
        }
        let reason = "instance i is being deprovisioned";
        let early = PowerJob {
            tenant: "acme".into(),
            state: State::Failed.into(),
            state_reason: reason.into(),
            ..PowerJob::default()
        };
        assert_eq!(Job::event_reason(&early), reason);
        assert_eq!(view(early).state_reason, reason);
    }

    #[test]
    fn an_event_of_a_job_without_a_tenant_has_the_reason() {
        assert_eq!(Job::event_reason(&job(State::Failed)), QUOTE);
    }
}
