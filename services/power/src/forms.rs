//! Forms of requests. BMCs differ in what they accept: if one form of a request is refused, the next
//! form is sent.
//!
//! Each part of a request that has several forms is an enum here, whose [`Form::TABLE`] has the
//! forms in the order in which they are tried. A form that a BMC accepted is stored in its record,
//! and comes first from then on. `docs/reference/power-jobs.md` has the same tables.

use std::collections::BTreeMap;

/// The parameters of `VirtualMedia.InsertMedia` besides the image (DSP2046), in the order in which
/// they are sent.
pub const INSERT_PARAMETERS: [&str; 7] = [
    "Inserted",
    "WriteProtected",
    "MediaType",
    "TransferProtocolType",
    "TransferMethod",
    "UserName",
    "Password",
];
/// The key of the accepted parameters of an insertion.
const INSERT_MEDIA: &str = "insert-media";
/// The start of an accepted insertion by a PATCH of the drive instead of the action.
const BY_PATCH: &str = "PATCH";
/// The start of an accepted insertion by the action.
const BY_ACTION: &str = "POST";

/// The form of each part that is tried first.
const FIRST_FORMS: [(&str, &str); 7] = [
    (Login::PART, Login::TABLE[0].1),
    (IfMatch::PART, IfMatch::TABLE[0].1),
    (BootMode::PART, BootMode::TABLE[0].1),
    (BootResource::PART, BootResource::TABLE[0].1),
    (EjectMedia::PART, EjectMedia::TABLE[0].1),
    (Privilege::PART, Privilege::TABLE[0].1),
    (INSERT_MEDIA, "POST Inserted WriteProtected"),
];

/// A part of requests that has several forms.
pub trait Form: Copy + PartialEq + 'static {
    /// The key of the accepted form in a BMC's record.
    const PART: &'static str;
    /// The forms and their names, in the order in which they are tried.
    const TABLE: &'static [(Self, &'static str)];

    /// Returns the name of the form.
    fn name(self) -> &'static str {
        Self::TABLE.iter().find(|(form, _)| *form == self).map_or("", |(_, name)| *name)
    }
}

/// A way to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// A session at the service root's link `Links/Sessions`.
    RootLink,
    /// The same, with or without a slash at its end: the other one.
    RootLinkSlash,
    /// A session at the link of the session service.
    ServiceLink,
    /// The same, with or without a slash at its end: the other one.
    ServiceLinkSlash,
    /// A session at the usual path.
    UsualPath,
    /// The same with a slash at its end.
    UsualPathSlash,
    /// A session at the members of the collection of sessions.
    Members,
    /// The password in every request (RFC 7617), without a session.
    Basic,
}

impl Form for Login {
    const PART: &'static str = "login";
    const TABLE: &'static [(Self, &'static str)] = &[
        (Self::RootLink, "root-link"),
        (Self::RootLinkSlash, "root-link-slash"),
        (Self::ServiceLink, "service-link"),
        (Self::ServiceLinkSlash, "service-link-slash"),
        (Self::UsualPath, "usual-path"),
        (Self::UsualPathSlash, "usual-path-slash"),
        (Self::Members, "members"),
        (Self::Basic, "basic"),
    ];
}

/// The condition of a change, If-Match (RFC 9110 §13.1.1, DSP0266 §7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMatch {
    /// The header ETag as it was received.
    Header,
    /// The property `@odata.etag` as it was received.
    Property,
    /// The ETag as a strong one.
    Strong,
    /// The ETag with its inner quotes removed.
    Requoted,
    /// The ETag as a weak one.
    Weak,
    /// Any version: `*`.
    Any,
    /// No condition.
    Absent,
}

impl Form for IfMatch {
    const PART: &'static str = "if-match";
    const TABLE: &'static [(Self, &'static str)] = &[
        (Self::Header, "header"),
        (Self::Property, "property"),
        (Self::Strong, "strong"),
        (Self::Requoted, "requoted"),
        (Self::Weak, "weak"),
        (Self::Any, "any"),
        (Self::Absent, "absent"),
    ];
}

/// The boot mode in a request that sets or clears an override and is not to change the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootMode {
    /// Not named.
    Omitted,
    /// The mode that the BMC reports is named.
    Named,
}

impl Form for BootMode {
    const PART: &'static str = "boot-mode";
    const TABLE: &'static [(Self, &'static str)] =
        &[(Self::Omitted, "omitted"), (Self::Named, "named")];
}

/// The resource that a boot override is set in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootResource {
    /// The system.
    System,
    /// Its settings for the next start (`@Redfish.Settings`).
    Settings,
}

impl Form for BootResource {
    const PART: &'static str = "boot-resource";
    const TABLE: &'static [(Self, &'static str)] =
        &[(Self::System, "system"), (Self::Settings, "settings")];
}

/// A way to take an image out of a virtual drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EjectMedia {
    /// `VirtualMedia.EjectMedia` with an empty object.
    Action,
    /// `VirtualMedia.EjectMedia` without a body.
    ActionWithoutBody,
    /// A PATCH of the drive.
    Patch,
}

impl Form for EjectMedia {
    const PART: &'static str = "eject-media";
    const TABLE: &'static [(Self, &'static str)] = &[
        (Self::Action, "action"),
        (Self::ActionWithoutBody, "action-without-body"),
        (Self::Patch, "patch"),
    ];
}

/// The privilege level of an IPMI session. OPERATOR suffices for power and boot flags (IPMI 2.0,
/// appendix G).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// OPERATOR.
    Operator,
    /// ADMINISTRATOR.
    Administrator,
}

impl Form for Privilege {
    const PART: &'static str = "privilege";
    const TABLE: &'static [(Self, &'static str)] =
        &[(Self::Operator, "OPERATOR"), (Self::Administrator, "ADMINISTRATOR")];
}

/// The parameters of an insertion that a BMC accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsertForm {
    /// True for a PATCH of the drive, false for the action.
    pub by_patch: bool,
    /// The parameters besides the image, in the order of [`INSERT_PARAMETERS`].
    pub parameters: Vec<&'static str>,
}

impl InsertForm {
    /// Returns the text of the form in a BMC's record, such as `POST Inserted MediaType`.
    fn text(&self) -> String {
        let start = if self.by_patch { BY_PATCH } else { BY_ACTION };
        [start].iter().chain(&self.parameters).copied().collect::<Vec<_>>().join(" ")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let by_patch = match words.next()? {
            BY_PATCH => true,
            BY_ACTION => false,
            _ => return None,
        };
        let words: Vec<_> = words.collect();
        let parameters = INSERT_PARAMETERS.into_iter().filter(|name| words.contains(name));
        Some(Self { by_patch, parameters: parameters.collect() })
    }
}

/// The forms that a BMC accepted, by their part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptedForms(BTreeMap<String, String>);

impl AcceptedForms {
    /// Returns the accepted form of a part, if there is one.
    pub fn get<F: Form>(&self) -> Option<F> {
        let name = self.0.get(F::PART)?;
        F::TABLE.iter().find(|(_, known)| known == name).map(|(form, _)| *form)
    }

    /// Returns the forms of a part, the accepted one first.
    pub fn in_order<F: Form>(&self) -> Vec<F> {
        let mut forms: Vec<F> = F::TABLE.iter().map(|(form, _)| *form).collect();
        let accepted = self.get::<F>();
        // The sort is stable: the others keep their order.
        forms.sort_by_key(|form| Some(*form) != accepted);
        forms
    }

    /// Returns this form alone.
    pub fn only<F: Form>(form: F) -> Self {
        Self([(F::PART.to_owned(), form.name().to_owned())].into())
    }

    /// Returns the form of an insertion alone.
    pub fn only_insertion(form: &InsertForm) -> Self {
        Self([(INSERT_MEDIA.to_owned(), form.text())].into())
    }

    /// Notes an accepted form. The first one of a table needs no note, unless another one was
    /// accepted before.
    pub fn accept<F: Form>(&mut self, form: F) {
        self.extend(Self::only(form));
    }

    /// Notes all forms of `other`, in the same way.
    pub fn extend(&mut self, other: Self) {
        for (part, form) in other.0 {
            let is_first = FIRST_FORMS.contains(&(part.as_str(), form.as_str()));
            if !is_first || self.0.contains_key(&part) {
                self.0.insert(part, form);
            }
        }
    }

    /// Returns these forms and `other`, for parts that both name those of `other`.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Returns the accepted form of an insertion.
    pub fn insertion(&self) -> Option<InsertForm> {
        InsertForm::parse(self.0.get(INSERT_MEDIA)?)
    }
}

impl From<BTreeMap<String, String>> for AcceptedForms {
    fn from(stored: BTreeMap<String, String>) -> Self {
        Self(stored)
    }
}

impl From<AcceptedForms> for BTreeMap<String, String> {
    fn from(forms: AcceptedForms) -> Self {
        forms.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<F: Form>() -> String {
        let names: Vec<_> = F::TABLE.iter().map(|(_, name)| format!("`{name}`")).collect();
        format!("| `{}` | {} |\n", F::PART, names.join(", "))
    }

    #[test]
    fn the_reference_page_has_every_form_in_the_order_of_trial() {
        let rows = [
            row::<Login>(),
            row::<IfMatch>(),
            row::<BootMode>(),
            row::<BootResource>(),
            row::<EjectMedia>(),
            row::<Privilege>(),
        ];
        let page = include_str!("../../../docs/reference/power-jobs.md");
        for row in rows {
            assert!(page.contains(&row), "the page needs:\n{row}");
        }
        assert!(page.contains(&format!("`{INSERT_MEDIA}`")));
    }

    #[test]
    fn the_accepted_form_comes_first_and_the_others_keep_their_order() {
        let mut accepted = AcceptedForms::default();
        assert_eq!(accepted.in_order::<BootMode>(), [BootMode::Omitted, BootMode::Named]);
        accepted.accept(IfMatch::Header);
        assert_eq!(accepted, AcceptedForms::default(), "the first form needs no note");
        accepted.accept(IfMatch::Any);
        let order = accepted.in_order::<IfMatch>();
        assert_eq!(order[..3], [IfMatch::Any, IfMatch::Header, IfMatch::Property]);
        assert_eq!(order.len(), IfMatch::TABLE.len());
        accepted.accept(IfMatch::Header);
        assert_eq!(accepted.get(), Some(IfMatch::Header));
    }

    #[test]
    fn a_record_of_a_newer_server_is_no_error() {
        let stored = [("if-match".to_owned(), "moon".to_owned()), ("x".into(), "y".into())];
        let accepted = AcceptedForms::from(BTreeMap::from(stored));
        assert_eq!((accepted.get::<IfMatch>(), accepted.insertion()), (None, None));
    }

    #[test]
    fn an_insertion_is_stored_with_its_parameters() {
        let parameters = vec!["WriteProtected", "MediaType"];
        for by_patch in [false, true] {
            let form = InsertForm { by_patch, parameters: parameters.clone() };
            assert_eq!(AcceptedForms::only_insertion(&form).insertion(), Some(form));
        }
    }
}
