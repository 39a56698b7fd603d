//! The quirks, and their use for a client.

/// A quirk of a BMC. Those with a letter and a number are of public reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Quirk {
    /// R1: the answer to a login has no Location.
    NoLocation,
    /// Neither has its body a link.
    NoLinkToSession,
    /// Location names an internal host.
    LocationOnInternalHost,
    /// Location is the collection.
    LocationIsCollection,
    /// R1: at most four sessions.
    FewSessions,
    /// R3: the login is redirected to the same path with a slash.
    LoginMoved301,
    /// R3.
    LoginMoved302,
    /// R3.
    LoginMoved307,
    /// R3.
    LoginMoved308,
    /// The login exists with a slash only, without a redirect.
    LoginNeedsSlash,
    /// The root links the session service only.
    NoLinkToSessions,
    /// There are no sessions.
    NoSessions,
    /// Logins are refused although there are sessions.
    SessionsDisabled,
    /// The password without a session is refused.
    NoBasic,
    /// The service root needs a login.
    RootNeedsLogin,
    /// A session is deleted on a condition only.
    LogoutNeedsCondition,
    /// R6: a change without If-Match is 428.
    ConditionRequired,
    /// R6: the header ETag is quoted twice.
    HeaderETagTwiceQuoted,
    /// There is no header ETag.
    NoHeaderETag,
    /// No resource has a version.
    NoETags,
    /// A weak ETag never matches.
    StrongComparison,
    /// Only `*` matches.
    OnlyAnyVersion,
    /// Every condition fails.
    NoConditions,
    /// R9: a change of Boot without the mode is refused.
    ModeRequired,
    /// R9: the allowed modes are listed.
    ModesListed,
    /// R10: an override without the mode changes it to legacy.
    ModeFallsToLegacy,
    /// An override with the mode is refused.
    ModeRefused,
    /// An override with the mode is accepted, and has no effect.
    ModeIgnored,
    /// The mode is not reported.
    ModeUnreported,
    /// Clearing needs the target.
    ClearNeedsTarget,
    /// Clearing is accepted, and has no effect.
    ClearIgnored,
    /// Boot is changed in the settings resource only.
    SettingsOnly,
    /// An override for one boot is one for every boot.
    AlwaysContinuous,
    /// R15: another system cannot be read.
    SecondSystemBroken,
    /// Another system may not be read by the account.
    SecondSystemUnauthorized,
    /// Another system never answers.
    SecondSystemHangs,
    /// The connection ends in the answer for another system.
    SecondSystemBreaks,
    /// Another system and the machine's answer their first reading late.
    SystemsSlow,
    /// Seventy systems on pages of ten.
    ManySystems,
    /// Links name an internal host.
    LinksToInternalHost,
    /// The Ethernet interfaces cannot be read.
    InterfacesBroken,
    /// R16: an insertion needs MediaType.
    InsertNeedsMediaType,
    /// R16: an insertion needs TransferProtocolType.
    InsertNeedsProtocol,
    /// R16: an insertion needs TransferMethod.
    InsertNeedsMethod,
    /// An insertion needs UserName and Password.
    InsertNeedsCredentials,
    /// An insertion needs a parameter that no client knows.
    InsertNeedsUnknown,
    /// WriteProtected is refused.
    InsertRefusesWriteProtected,
    /// The needed parameters are listed by an ActionInfo resource.
    InsertListsParameters,
    /// An image is inserted and ejected by a PATCH of the drive.
    MediaByPatch,
    /// An ejection must have no body.
    EjectWithoutBody,
    /// The reset types are listed by an ActionInfo resource.
    ResetTypesElsewhere,
    /// The reset types are not listed, and On is refused.
    OnRefused,
    /// A reset is a task.
    ResetIsTask,
    /// Refusals have no body.
    SilentRefusals,
    /// Refusals have a text only.
    RefusalsWithoutIds,
    /// Mistakes are internal errors.
    InternalErrors,
    /// The account may not change anything.
    AccountReadsOnly,
    /// The boot device is not among the listed ones.
    NoNetworkBoot,
}

/// The use of a BMC with a quirk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every job has success.
    Success,
    /// A job fails, and its reason has this text.
    Refusal(&'static str),
}

use Outcome::{Refusal, Success};
use Quirk::*;

impl Quirk {
    /// Each quirk, and the use of a BMC that has it alone.
    pub(crate) const TABLE: [(Self, Outcome); 54] = [
        (NoLocation, Success),
        (NoLinkToSession, Success),
        (LocationOnInternalHost, Success),
        (LocationIsCollection, Success),
        (FewSessions, Success),
        (LoginMoved301, Success),
        (LoginMoved302, Success),
        (LoginMoved307, Success),
        (LoginMoved308, Success),
        (LoginNeedsSlash, Success),
        (NoLinkToSessions, Success),
        (NoSessions, Success),
        (SessionsDisabled, Success),
        (NoBasic, Success),
        (RootNeedsLogin, Success),
        (LogoutNeedsCondition, Success),
        (ConditionRequired, Success),
        (HeaderETagTwiceQuoted, Success),
        (NoHeaderETag, Success),
        (NoETags, Success),
        (StrongComparison, Success),
        (OnlyAnyVersion, Success),
        (NoConditions, Success),
        (ModeRequired, Success),
        (ModesListed, Success),
        (ModeFallsToLegacy, Success),
        (ModeRefused, Success),
        (ModeIgnored, Success),
        (ModeUnreported, Success),
        (ClearNeedsTarget, Success),
        (ClearIgnored, Success),
        (SettingsOnly, Success),
        (AlwaysContinuous, Success),
        (SecondSystemBroken, Success),
        (SecondSystemUnauthorized, Success),
        (ManySystems, Success),
        (LinksToInternalHost, Success),
        (InterfacesBroken, Success),
        (InsertNeedsMediaType, Success),
        (InsertNeedsProtocol, Success),
        (InsertNeedsMethod, Success),
        (InsertNeedsCredentials, Success),
        (InsertRefusesWriteProtected, Success),
        (InsertListsParameters, Success),
        (MediaByPatch, Success),
        (EjectWithoutBody, Success),
        (ResetTypesElsewhere, Success),
        (OnRefused, Success),
        (ResetIsTask, Success),
        (SilentRefusals, Success),
        (RefusalsWithoutIds, Success),
        (InternalErrors, Success),
        (AccountReadsOnly, Refusal("403 Forbidden")),
        (NoNetworkBoot, Refusal("the BMC supports no way to do it")),
    ];

    /// Quirks that no BMC has together: it would contradict itself, or leave a client no way at
    /// all.
    pub(crate) const CONTRADICTIONS: &[&[Self]] = &[
        &[LoginMoved301, LoginMoved302],
        &[LoginMoved301, LoginMoved307],
        &[LoginMoved301, LoginMoved308],
        &[LoginMoved302, LoginMoved307],
        &[LoginMoved302, LoginMoved308],
        &[LoginMoved307, LoginMoved308],
        &[LoginMoved301, LoginNeedsSlash],
        &[LoginMoved302, LoginNeedsSlash],
        &[LoginMoved307, LoginNeedsSlash],
        &[LoginMoved308, LoginNeedsSlash],
        &[NoSessions, NoBasic],
        &[SessionsDisabled, NoBasic],
        &[HeaderETagTwiceQuoted, StrongComparison],
        &[HeaderETagTwiceQuoted, OnlyAnyVersion],
        &[HeaderETagTwiceQuoted, NoConditions],
        &[HeaderETagTwiceQuoted, NoHeaderETag],
        &[HeaderETagTwiceQuoted, NoETags],
        &[StrongComparison, NoETags],
        // Without a version the first request has no condition.
        &[OnlyAnyVersion, NoETags],
        &[ConditionRequired, NoETags],
        &[StrongComparison, OnlyAnyVersion],
        &[StrongComparison, NoConditions],
        &[OnlyAnyVersion, NoConditions],
        &[ConditionRequired, NoConditions],
        &[ModeRequired, ModeRefused],
        // A mode that is not reported cannot be kept.
        &[ModeFallsToLegacy, ModeUnreported],
        &[ModeFallsToLegacy, ModeRefused],
        &[ModesListed, ModeRefused],
        &[ModeIgnored, ModeRequired],
        &[ModeIgnored, ModeFallsToLegacy],
        // Mistakes that look like passing failures, and requests without effect: more than the
        // attempts of an operation.
        &[ClearIgnored, InternalErrors, SilentRefusals],
        // Without a word of the BMC no client knows that it has to guess a mode.
        &[ModeRequired, ModeUnreported, SilentRefusals],
        // The parameters differ from those of each usual request, and nothing says so.
        &[InsertNeedsCredentials, SilentRefusals],
        &[InsertRefusesWriteProtected, InsertNeedsMediaType, SilentRefusals],
        &[InsertRefusesWriteProtected, InsertNeedsProtocol, SilentRefusals],
        &[InsertRefusesWriteProtected, InsertNeedsMethod, SilentRefusals],
        &[MediaByPatch, InsertListsParameters],
        &[SilentRefusals, RefusalsWithoutIds],
        &[OnRefused, ResetTypesElsewhere],
        &[SecondSystemBroken, ManySystems],
        &[SecondSystemUnauthorized, ManySystems],
        &[SecondSystemUnauthorized, SecondSystemBroken],
    ];
}
