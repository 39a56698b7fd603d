//! System call filters. There are three; the strictest answer of them wins (seccomp(2)).
//!
//! 1. Calls without an honest use in a job kill it.
//! 2. Calls that libraries replace by an older one on `ENOSYS` fail with that number.
//! 3. Calls that jobs need are allowed; all others fail with `EPERM`.
//!
//! Calls of another ABI of the processor, such as 32-bit ones, kill the job or fail with `EPERM`.

mod calls;

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter,
};

use calls::{ALLOWED, ALLOWED_LEGACY, FATAL, FATAL_LEGACY, MISSING};

/// Rules of one filter: a call without a rule matches whatever its arguments.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Options of prctl(2) that Rust, glibc and qemu use. `PR_SET_PDEATHSIG` is not among them: the
/// job could keep running after the death of its builder.
const PRCTL_OPTIONS: [i32; 6] = [
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_GET_DUMPABLE,
    libc::PR_SET_VMA,
    libc::PR_CAPBSET_READ,
    libc::PR_GET_NO_NEW_PRIVS,
];
/// Flags of clone(2) that create namespaces.
const NAMESPACE_FLAGS: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;
/// `FS_IOC_FIEMAP` of include/uapi/linux/fs.h: the extents of a file.
const FIEMAP: u64 = 0xC020_660B;

/// Applies the filters to this process, which has a single thread, and to its children.
pub(crate) fn apply(programs_allowed: bool) -> Result<(), Error> {
    let fatal = plain(FATAL.iter().chain(FATAL_LEGACY));
    let missing = plain(MISSING);
    let no_call = SeccompAction::Errno(errno(libc::ENOSYS));
    let refused = SeccompAction::Errno(errno(libc::EPERM));
    // The last filter denies further ones, so that it comes last.
    for (rules, on_match, otherwise) in [
        (fatal, SeccompAction::KillProcess, SeccompAction::Allow),
        (missing, no_call, SeccompAction::Allow),
        (allowed(programs_allowed)?, SeccompAction::Allow, refused),
    ] {
        let architecture = std::env::consts::ARCH.try_into()?;
        let filter = SeccompFilter::new(rules, otherwise, on_match, architecture)?;
        apply_filter(&BpfProgram::try_from(filter)?)?;
    }
    Ok(())
}

/// Returns the rules of the calls that jobs need.
fn allowed(programs_allowed: bool) -> Result<Rules, Error> {
    // The filter for missing calls answers them.
    let mut rules = plain(ALLOWED.iter().chain(ALLOWED_LEGACY).chain(MISSING));
    let is = |argument, value| rule(vec![condition(argument, SeccompCmpOp::Eq, value)?]);
    let options = PRCTL_OPTIONS.map(|option| is(0, option.unsigned_abs().into()));
    let requests = [libc::TCGETS, libc::FIONREAD, libc::FIONBIO, libc::FIOCLEX, FIEMAP];
    rules.insert(libc::SYS_prctl, options.into_iter().collect::<Result<_, _>>()?);
    rules.insert(
        libc::SYS_ioctl,
        requests.map(|request| is(1, request)).into_iter().collect::<Result<_, _>>()?,
    );
    rules.insert(libc::SYS_socketpair, vec![is(0, libc::AF_UNIX.unsigned_abs().into())?]);
    rules.insert(libc::SYS_clone, vec![clone_rule(programs_allowed)?]);
    if programs_allowed {
        rules.extend(plain(calls::PROGRAMS));
    }
    Ok(rules)
}

/// Allows threads, and processes if programs are allowed, but no namespaces.
fn clone_rule(programs_allowed: bool) -> Result<SeccompRule, Error> {
    let masked = |flag: i32, value: i32| {
        let mask = SeccompCmpOp::MaskedEq(flag.unsigned_abs().into());
        condition(0, mask, value.unsigned_abs().into())
    };
    let mut conditions = vec![masked(NAMESPACE_FLAGS, 0)?];
    if !programs_allowed {
        conditions.push(masked(libc::CLONE_THREAD, libc::CLONE_THREAD)?);
    }
    rule(conditions)
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, Error> {
    Ok(SeccompRule::new(conditions)?)
}

/// Compares the lower half of an argument: the kernel ignores the upper one of these calls.
fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, Error> {
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?)
}

/// Returns rules that match whatever the arguments.
fn plain<'a>(calls: impl IntoIterator<Item = &'a i64>) -> Rules {
    calls.into_iter().map(|call| (*call, Vec::new())).collect()
}

fn errno(number: i32) -> u32 {
    number.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_both_allowed_and_fatal() {
        let allowed = allowed(true).unwrap();
        for call in FATAL.iter().chain(FATAL_LEGACY) {
            assert!(!allowed.contains_key(call), "{call}");
        }
    }

    #[test]
    fn programs_and_processes_need_permission() {
        let allowed = allowed(false).unwrap();
        assert!(!allowed.contains_key(&libc::SYS_execve));
        assert_ne!(clone_rule(false).unwrap(), clone_rule(true).unwrap());
    }
}
