//! States of builds and of their images, as values.
//!
//! ```text
//! build   PENDING ─lease─▶ RUNNING ─finish─▶ COMPLETED | ERROR
//!            ▲                │ lease expires, or a failure that may be retried
//!            └────────────────┘ up to MAX_ATTEMPTS
//!         PENDING, RUNNING ─cancel─▶ CANCELED
//! image   UPLOADING ─all bytes─▶ PROCESSING ─build─▶ READY | FAILED
//! ```

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use tinwright::image::v1 as pb;
use tinwright::image::v1::{BuildState, ImageState};

use crate::error::Error;
use crate::source;

/// Maximum number of attempts of a build.
pub const MAX_ATTEMPTS: u32 = 3;
/// Maximum length of a reason in bytes.
const MAX_REASON_BYTES: usize = 1024;

/// An attempt of a build, by a builder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Name of the builder's process.
    pub holder: String,
    /// The number of the attempt.
    pub number: u32,
}

/// Leases a pending `build` to `holder` until `now` and `duration`.
pub fn leased(build: pb::Build, holder: &str, now: SystemTime, duration: Duration) -> pb::Build {
    let attempt = build.attempts + 1;
    let expire_time = Some((now + duration).into());
    let lease = pb::BuildLease { holder: holder.to_owned(), expire_time, attempt };
    let build = pb::Build { lease: Some(lease), attempts: attempt, ..build };
    in_state(build, BuildState::Running, "", now)
}

/// Renews the lease of `build` until `now` and `duration`. The attempt has to be the present one.
pub fn renewed(
    build: pb::Build,
    attempt: &Attempt,
    now: SystemTime,
    duration: Duration,
) -> Result<pb::Build, Error> {
    let lease = held_lease(&build, attempt)?;
    let lease = pb::BuildLease { expire_time: Some((now + duration).into()), ..lease };
    Ok(pb::Build { lease: Some(lease), ..build })
}

/// Returns the lease of `attempt`, if `build` is being worked on by it.
pub fn held_lease(build: &pb::Build, attempt: &Attempt) -> Result<pb::BuildLease, Error> {
    let lost = || {
        let text = format!("build {}: attempt {} has ended", build.id, attempt.number);
        Error::precondition("LEASE_LOST", "build", &build.id, text)
    };
    if build.is_terminal() {
        let text = format!("build {} has ended: {}", build.id, build.state().word());
        return Err(Error::precondition("BUILD_ENDED", "build", &build.id, text));
    }
    let lease = build.lease.clone().ok_or_else(lost)?;
    let is_held = lease.holder == attempt.holder && lease.attempt == attempt.number;
    if is_held { Ok(lease) } else { Err(lost()) }
}

/// True if the lease of `build` has ended at `now`.
pub fn is_expired(build: &pb::Build, now: SystemTime) -> bool {
    let until = build.lease.as_ref().and_then(|lease| lease.expire_time);
    let until = until.and_then(|time| SystemTime::try_from(time).ok());
    build.state() == BuildState::Running && until.is_none_or(|until| until <= now)
}

/// Ends the attempt of a build at `now`. It becomes pending again if it `may_retry` and has attempts
/// left.
pub fn failed(build: pb::Build, reason: &str, may_retry: bool, now: SystemTime) -> pb::Build {
    let state = match may_retry && build.attempts < MAX_ATTEMPTS {
        true => BuildState::Pending,
        false => BuildState::Error,
    };
    ended(build, state, reason, now)
}

/// Ends the attempt of `build`, which gets `state`. At the end of a build, the secrets of its source
/// are erased.
pub fn ended(build: pb::Build, state: BuildState, reason: &str, now: SystemTime) -> pb::Build {
    let build = pb::Build { lease: None, step: String::new(), progress: None, ..build };
    let mut build = in_state(build, state, reason, now);
    if build.is_terminal() {
        source::erase_secrets(build.source.as_mut());
    }
    build
}

fn in_state(build: pb::Build, state: BuildState, reason: &str, now: SystemTime) -> pb::Build {
    let time = Some(Timestamp::from(now));
    pb::Build {
        state: state.into(),
        state_reason: cut(reason),
        state_time: time,
        update_time: time,
        overdue: false,
        ..build
    }
}

/// Returns `image` in `state`, without the progress of its build.
pub fn image_in(image: pb::Image, state: ImageState, reason: &str, now: SystemTime) -> pb::Image {
    let time = Some(Timestamp::from(now));
    pb::Image {
        state: state.into(),
        state_reason: cut(reason),
        state_time: time,
        update_time: time,
        overdue: false,
        step: String::new(),
        progress: None,
        ..image
    }
}

/// Returns `image` without content, for `reason`.
pub fn image_failed(image: pb::Image, reason: &str, now: SystemTime) -> pb::Image {
    let failed = image_in(image, ImageState::Failed, reason, now);
    pb::Image { stored_bytes: 0, ..failed }
}

/// Returns `image` after the present state of its `build`. None: the image does not follow it.
pub fn image_after(image: &pb::Image, build: &pb::Build, now: SystemTime) -> Option<pb::Image> {
    if image.state() != ImageState::Processing {
        return None;
    }
    match build.state() {
        BuildState::Error => Some(image_failed(image.clone(), &build.state_reason, now)),
        BuildState::Canceled => Some(image_failed(image.clone(), "the build was canceled", now)),
        BuildState::Pending | BuildState::Running => {
            let (step, progress) = (build.step.clone(), build.progress);
            let state_reason = build.state_reason.clone();
            let mut image = pb::Image { step, progress, state_reason, ..image.clone() };
            source::pin(image.source.as_mut(), source::pinned(build.source.as_ref()));
            Some(image)
        }
        BuildState::Unspecified | BuildState::Completed => None,
    }
}

/// Shortens `reason` to what is stored.
fn cut(reason: &str) -> String {
    reason[..reason.floor_char_boundary(MAX_REASON_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tinwright::secret::Sealable as _;

    use super::*;

    const LEASE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn pending() -> pb::Build {
        pb::Build { id: "b".into(), state: BuildState::Pending.into(), ..pb::Build::default() }
    }

    /// A build with a user and a password of a registry.
    fn with_login() -> pb::Build {
        let oci = pb::OciSource {
            reference: "registry.example/a".into(),
            username: "anna".into(),
            password: "s3cret".into(),
            ..pb::OciSource::default()
        };
        let source = Some(pb::image_source::Source::Oci(oci));
        pb::Build { source: Some(pb::ImageSource { source, ..Default::default() }), ..pending() }
    }

    fn has_login(build: &pb::Build) -> bool {
        !build.clone().take_secrets().is_empty()
    }

    fn attempt(holder: &str, number: u32) -> Attempt {
        Attempt { holder: holder.into(), number }
    }

    #[test]
    fn a_lease_is_held_by_its_attempt_only() {
        let build = leased(pending(), "a", at(0), LEASE);
        assert!(held_lease(&build, &attempt("a", 1)).is_ok());
        for other in [attempt("b", 1), attempt("a", 2)] {
            assert!(held_lease(&build, &other).is_err(), "{other:?}");
        }
        assert!(!is_expired(&build, at(59)));
        assert!(is_expired(&build, at(60)));
        let build = renewed(build, &attempt("a", 1), at(30), LEASE).unwrap();
        assert!(!is_expired(&build, at(89)));
    }

    #[test]
    fn a_failure_is_retried_up_to_the_maximum() {
        let mut build = pending();
        for number in 1..=MAX_ATTEMPTS {
            build = leased(build, "a", at(0), LEASE);
            assert_eq!(build.attempts, number);
            build = failed(build, "connection lost", true, at(1));
        }
        assert_eq!(
            (build.state(), build.state_reason.as_str()),
            (BuildState::Error, "connection lost")
        );
        let build = failed(leased(pending(), "a", at(0), LEASE), "not a disk", false, at(1));
        assert_eq!(build.state(), BuildState::Error);
    }

    proptest! {
        /// Whatever happens to a build, an ended one holds no lease and no secret, and stays as it is.
        /// One that goes on keeps its secrets.
        #[test]
        fn an_ended_build_has_no_lease(steps in proptest::collection::vec(0..4_u8, 1..20)) {
            let mut build = with_login();
            for step in steps {
                prop_assert_eq!(has_login(&build), !build.is_terminal());
                if build.is_terminal() {
                    prop_assert!(build.lease.is_none());
                    prop_assert!(held_lease(&build, &attempt("a", build.attempts)).is_err());
                    break;
                }
                build = match (step, build.state()) {
                    (0, BuildState::Pending) => leased(build, "a", at(0), LEASE),
                    (1, _) => failed(build, "x", true, at(1)),
                    (2, _) => failed(build, "x", false, at(1)),
                    _ => ended(build, BuildState::Canceled, "", at(1)),
                };
            }
        }
    }
}
