//! Virtual media: the requests that insert and eject an image, and the readings that prove it.

use runtime::secret::Secret;
use tinwright::power::v1::operation::{Drive, InsertMedia};

use super::{Call, Choice, DriveKind, MediaCall, Next, Request};
use crate::forms::{AcceptedForms, EjectMedia, INSERT_PARAMETERS, InsertForm};
use crate::redfish::{Protocol, System, VirtualDrive};

/// The first part of the names of requests that insert an image.
const INSERT: &str = "insert";
/// The options of the first request that inserts an image.
const OPTIONS: [&str; 2] = ["Inserted", "WriteProtected"];
/// The options of a request that has all that are no credentials.
const ALL_OPTIONS: [&str; 5] =
    ["Inserted", "WriteProtected", "MediaType", "TransferProtocolType", "TransferMethod"];

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

/// An image in the drive is replaced: it is ejected first, since services refuse to insert a second
/// one.
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
        return choice.send_first(ejections(drive, choice));
    }
    choice.send_first(insertions(wanted, drive, choice))
}

/// Returns the requests that insert the image into `drive`, the preferred one first.
fn insertions(wanted: &InsertMedia, drive: &VirtualDrive, choice: Choice<'_>) -> Vec<Request> {
    let form = |by_patch, options: &[&str]| {
        let parameters = INSERT_PARAMETERS.into_iter();
        let is_sent = |name: &&str| is_sent(name, by_patch, options, drive, choice);
        InsertForm { by_patch, parameters: parameters.filter(is_sent).collect() }
    };
    let by_action = [form(false, &OPTIONS), form(false, &[]), form(false, &ALL_OPTIONS)];
    let by_patch = [form(true, &OPTIONS[..1]), form(true, &[])];
    let mut forms: Vec<InsertForm> = Vec::new();
    for form in choice.accepted.insertion().into_iter().chain(by_action).chain(by_patch) {
        let is_possible = form.by_patch || drive.insert.is_some();
        if is_possible && !forms.contains(&form) {
            forms.push(form);
        }
    }
    let request = |form: InsertForm| {
        let accepted = AcceptedForms::only_insertion(&form);
        let (name, image) = (name_of(&form), Secret::new(wanted.image_url.clone()));
        let kind = DriveKind::of(wanted.drive);
        request(name, MediaCall::Insert { image, form, kind }, accepted)
    };
    forms.into_iter().map(request).collect()
}

/// True if a request with these options has the parameter `name`: also if the BMC asks for it, but
/// not if the BMC refuses it.
fn is_sent(
    name: &str,
    by_patch: bool,
    options: &[&str],
    drive: &VirtualDrive,
    choice: Choice<'_>,
) -> bool {
    let is_in = |list: &[String]| list.iter().any(|listed| listed == name);
    // Not a property of a drive (DSP2046, VirtualMedia).
    if is_in(&choice.progress.unwanted) || by_patch && name == "MediaType" {
        return false;
    }
    let listed = drive.parameters.get(name).filter(|_| !by_patch);
    let is_known = by_patch || listed.is_some() || !drive.parameters.is_complete;
    is_in(&choice.progress.missing)
        || listed.is_some_and(|parameter| parameter.is_required)
        || is_known && options.contains(&name)
}

/// Returns the unique name of a request in this form.
fn name_of(form: &InsertForm) -> String {
    let InsertForm { by_patch, parameters } = form;
    let start = if *by_patch { "insert by PATCH" } else { INSERT };
    match parameters.as_slice() {
        [] => format!("{start} without options"),
        usual if usual == OPTIONS && !by_patch => start.into(),
        usual if usual == &OPTIONS[..1] && *by_patch => start.into(),
        named => format!("{start} with {}", named.join(", ")),
    }
}

pub(super) fn eject(wanted: i32, system: &System, choice: Choice<'_>) -> Next {
    match drive(system, DriveKind::of(wanted)) {
        Err(reason) => Next::Impossible(reason),
        Ok(drive) if !drive.inserted => Next::Done(Vec::new()),
        Ok(drive) => choice.send_first(ejections(drive, choice)),
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
fn ejections(drive: &VirtualDrive, choice: Choice<'_>) -> Vec<Request> {
    let forms = choice.accepted.in_order::<EjectMedia>().into_iter();
    let forms = forms.filter(|form| *form == EjectMedia::Patch || drive.eject.is_some());
    let to_request = |form| {
        let name = match form {
            EjectMedia::Action => "eject",
            EjectMedia::ActionWithoutBody => "eject without body",
            EjectMedia::Patch => "eject by PATCH",
        };
        request(name.into(), MediaCall::Eject(form), AcceptedForms::only(form))
    };
    forms.map(to_request).collect()
}

fn request(name: String, call: MediaCall, forms: AcceptedForms) -> Request {
    let call = Call::Media(call);
    Request { name, call, is_last_resort: false, follows_ineffective: false, forms }
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
        let (timing, accepted) = (Timing::default(), AcceptedForms::default());
        let choice = Choice { progress, accepted: &accepted, timing: &timing, now: i64::MAX };
        insert(&wanted, &system(drive), choice)
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
        let all =
            "insert with Inserted, WriteProtected, MediaType, TransferProtocolType, TransferMethod";
        let (patch, bare) = ("insert by PATCH", "insert by PATCH without options");
        for expected in ["insert", "insert without options", all, patch, bare] {
            assert_eq!(name(next(Some(empty()), &progress)), expected);
            progress.refused.push(expected.into());
            progress.request = expected.into();
        }
        let Next::Impossible(reason) = next(Some(empty()), &progress) else { panic!() };
        let wanted =
            format!("the BMC refused insert, insert without options, {all}, {patch}, {bare}");
        assert_eq!(reason, wanted);
        let old = VirtualDrive { insert: None, eject: None, ..empty() };
        assert_eq!(name(next(Some(old), &Progress::default())), "insert by PATCH");
    }

    /// The parameters of the next insertion.
    fn parameters(drive: VirtualDrive, progress: &Progress) -> Vec<&'static str> {
        let Next::Send(request) = next(Some(drive), progress) else { panic!() };
        let Call::Media(MediaCall::Insert { form, .. }) = request.call else { panic!() };
        form.parameters
    }

    #[test]
    fn a_request_has_the_parameters_that_a_refusal_asks_for_and_not_those_that_it_refuses() {
        let refused = Progress {
            missing: vec!["MediaType".into(), "Image".into()],
            unwanted: vec!["WriteProtected".into()],
            refused: vec!["insert".into()],
            ..after("insert", false)
        };
        assert_eq!(parameters(empty(), &refused), ["Inserted", "MediaType"]);
        let credentials = Progress { missing: vec!["UserName".into()], ..refused };
        assert_eq!(parameters(empty(), &credentials), ["Inserted", "UserName"]);
    }

    #[test]
    fn the_first_request_has_the_parameters_that_the_service_lists_as_required() {
        let parameter = |name: &str, is_required| {
            let values = Vec::new();
            crate::redfish::media::Parameter { name: name.into(), is_required, values }
        };
        let listed = vec![
            parameter("Image", true),
            parameter("Inserted", false),
            parameter("TransferProtocolType", true),
        ];
        let parameters = crate::redfish::media::Parameters { listed, is_complete: true };
        let drive = VirtualDrive { parameters, ..empty() };
        let wanted = ["Inserted", "TransferProtocolType"];
        assert_eq!(self::parameters(drive, &Progress::default()), wanted);
    }

    #[test]
    fn without_a_drive_the_reason_names_what_is_missing() {
        let reason = "the BMC has no virtual CD drive".to_owned();
        assert_eq!(next(None, &Progress::default()), Next::Impossible(reason));
        let (progress, timing, accepted) = Default::default();
        let choice = Choice { progress: &progress, accepted: &accepted, timing: &timing, now: 0 };
        let ipmi = System { protocol: Protocol::Ipmi, ..System::default() };
        let Next::Impossible(reason) = eject(0, &ipmi, choice) else { panic!() };
        assert_eq!(reason, "IPMI has no virtual media: they need Redfish");
    }
}
