//! Virtual media: the requests that insert and eject an image, and the readings that prove it.

use runtime::secret::Secret;
use tinwright::power::v1::operation::{Drive, InsertMedia};

use super::{Call, Choice, DriveKind, MediaCall, Next, Request};
use crate::redfish::{Protocol, System, VirtualDrive};

/// The first part of the names of requests that insert an image.
const INSERT: &str = "insert";

impl DriveKind {
    /// Returns the drive that an operation names.
    pub fn of(drive: i32) -> Self {
        match Drive::try_from(drive).unwrap_or_default() {
            Drive::Unspecified | Drive::Cd => Self::Cd,
            Drive::Usb => Self::Usb,
        }
    }

    /// Returns Redfish's names of its media.
    pub fn media_types(self) -> &'static [&'static str] {
        match self {
            Self::Cd => &["CD", "DVD"],
            Self::Usb => &["USBStick", "Floppy"],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Cd => "CD",
            Self::Usb => "USB",
        }
    }
}

/// An image in the drive is replaced: it is ejected first, since services refuse to insert a second one.
pub(super) fn insert(wanted: &InsertMedia, system: &System, choice: Choice<'_>) -> Next {
    let drive = match drive(system, DriveKind::of(wanted.drive)) {
        Ok(drive) => drive,
        Err(reason) => return Next::Impossible(reason),
    };
    let is_requested = choice.progress.request.starts_with(INSERT);
    if drive.inserted && drive.image == wanted.image_url {
        return Next::Done(Vec::new());
    }
    if drive.inserted && is_requested && choice.progress.accepted {
        return Next::Done(vec!["the drive reports the URL of its image otherwise".into()]);
    }
    if drive.inserted {
        return choice.send_first(ejections(drive));
    }
    let image = || Secret::new(wanted.image_url.clone());
    let by_action = [
        (INSERT, MediaCall::Insert(image())),
        ("insert without options", MediaCall::InsertImageOnly(image())),
    ];
    let by_patch = [("insert by PATCH", MediaCall::PatchImage(image()))];
    choice.send_first(match drive.insert.is_some() {
        true => requests(by_action.into_iter().chain(by_patch)),
        false => requests(by_patch),
    })
}

pub(super) fn eject(wanted: i32, system: &System, choice: Choice<'_>) -> Next {
    match drive(system, DriveKind::of(wanted)) {
        Err(reason) => Next::Impossible(reason),
        Ok(drive) if !drive.inserted => Next::Done(Vec::new()),
        Ok(drive) => choice.send_first(ejections(drive)),
    }
}

fn drive(system: &System, kind: DriveKind) -> Result<&VirtualDrive, String> {
    match (&system.drive, system.protocol) {
        (Some(drive), _) => Ok(drive),
        (None, Protocol::Ipmi) => Err("IPMI has no virtual media: they need Redfish".into()),
        (None, Protocol::Redfish) => Err(format!("the BMC has no virtual {} drive", kind.name())),
    }
}

/// Returns the requests that eject the image of `drive`, the preferred one first.
fn ejections(drive: &VirtualDrive) -> Vec<Request> {
    let action = drive.eject.as_ref().map(|_| ("eject", MediaCall::Eject));
    requests(action.into_iter().chain([("eject by PATCH", MediaCall::PatchNoImage)]))
}

fn requests(calls: impl IntoIterator<Item = (&'static str, MediaCall)>) -> Vec<Request> {
    let request = |(name, call): (&str, _)| Request { name: name.into(), call: Call::Media(call) };
    calls.into_iter().map(request).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Progress, Timing};
    use super::*;

    const URL: &str = "http://192.0.2.1/a.iso";

    fn system(drive: Option<VirtualDrive>) -> System {
        System { drive, ..System::default() }
    }

    fn empty() -> VirtualDrive {
        let link = || Some("/m/1/a".to_owned());
        VirtualDrive { insert: link(), eject: link(), ..VirtualDrive::default() }
    }

    fn with(image: &str) -> VirtualDrive {
        VirtualDrive { image: image.into(), inserted: true, ..empty() }
    }

    fn after(request: &str, accepted: bool) -> Progress {
        Progress { request: request.into(), accepted, ..Progress::default() }
    }

    fn next(drive: Option<VirtualDrive>, progress: &Progress) -> Next {
        let wanted = InsertMedia { image_url: URL.into(), ..InsertMedia::default() };
        let timing = Timing::default();
        insert(&wanted, &system(drive), Choice { progress, timing: &timing, now: i64::MAX })
    }

    fn name(next: Next) -> String {
        let Next::Send(request) = next else { panic!("{next:?}") };
        request.name
    }

    #[test]
    fn an_image_is_inserted_into_an_empty_drive_and_another_one_is_ejected_first() {
        assert_eq!(name(next(Some(empty()), &Progress::default())), "insert");
        assert_eq!(name(next(Some(with("http://192.0.2.1/b.iso")), &Progress::default())), "eject");
        assert_eq!(name(next(Some(empty()), &after("eject", true))), "insert");
        assert_eq!(next(Some(with(URL)), &Progress::default()), Next::Done(vec![]));
    }

    #[test]
    fn a_url_that_reads_back_otherwise_counts_only_after_an_accepted_request() {
        let masked = || Some(with("http://***"));
        assert_eq!(name(next(masked(), &after("insert", false))), "eject");
        let done = vec!["the drive reports the URL of its image otherwise".to_owned()];
        assert_eq!(next(masked(), &after("insert", true)), Next::Done(done));
    }

    #[test]
    fn a_refused_action_is_followed_by_one_without_options_and_then_by_a_patch() {
        let mut progress = Progress::default();
        for expected in ["insert", "insert without options", "insert by PATCH"] {
            assert_eq!(name(next(Some(empty()), &progress)), expected);
            progress.refused.push(expected.into());
            progress.request = expected.into();
        }
        let Next::Impossible(reason) = next(Some(empty()), &progress) else { panic!() };
        assert_eq!(reason, "the BMC refused insert, insert without options, insert by PATCH");
        let old = VirtualDrive { insert: None, eject: None, ..empty() };
        assert_eq!(name(next(Some(old), &Progress::default())), "insert by PATCH");
    }

    #[test]
    fn without_a_drive_the_reason_names_what_is_missing() {
        let reason = "the BMC has no virtual CD drive".to_owned();
        assert_eq!(next(None, &Progress::default()), Next::Impossible(reason));
        let (progress, timing) = (Progress::default(), Timing::default());
        let choice = Choice { progress: &progress, timing: &timing, now: 0 };
        let ipmi = System { protocol: Protocol::Ipmi, ..System::default() };
        let Next::Impossible(reason) = eject(0, &ipmi, choice) else { panic!() };
        assert_eq!(reason, "IPMI has no virtual media: they need Redfish");
    }
}
