//! Landlock rules: system directories and inputs to read, the scratch directory to write, no TCP,
//! no signals and no abstract sockets outside.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use crate::job::{Job, LandlockState};
use crate::root::{DEVICES, SYSTEM};

/// Version that the rules are written for. An older kernel enforces the part that it has.
const VERSION: ABI = ABI::V6;

/// Restricts this process, which has a single thread, and its children. The job names its files
/// as this process sees them.
pub(crate) fn apply(job: Option<&Job>) -> Result<LandlockState, RulesetError> {
    let inputs = job.into_iter().flat_map(|job| &job.read_only).map(|(path, _)| path);
    let programs_allowed = job.is_some_and(|job| job.programs_allowed);
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let execute = if programs_allowed { AccessFs::Execute.into() } else { BitFlags::EMPTY };
    let special = AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock;
    let write = AccessFs::from_all(VERSION) & !(special | AccessFs::IoctlDev);
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::from_all(VERSION))?
        .scope(Scope::from_all(VERSION))?
        .create()?
        .add_rules(path_beneath_rules(SYSTEM, read | execute))?
        .add_rules(path_beneath_rules(inputs, read))?
        .add_rules(path_beneath_rules(DEVICES, AccessFs::ReadFile | AccessFs::WriteFile))?
        .add_rules(path_beneath_rules(job.map(|job| &job.scratch), write))?
        .restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => LandlockState::Full,
        RulesetStatus::PartiallyEnforced => LandlockState::Partial,
        RulesetStatus::NotEnforced => LandlockState::None,
    })
}
