//! Changes of resources, on the condition that the version is the one that was read (DSP0266,
//! "ETags").
//!
//! Services differ in the form of the condition that they accept. After a refusal of one form the
//! next one is sent, unless the resource has changed meanwhile: then the same form with the new
//! version.

use reqwest::header::HeaderValue;
use reqwest::{Method, Url};
use serde_json::Value;

use super::connection::Outgoing;
use super::response::{ETag, Response};
use super::{Error, Redfish};
use crate::forms::IfMatch;

/// Maximum number of conflicts with other clients that are resolved by reading again.
const MAX_CONFLICTS: usize = 3;
/// The start of a weak ETag (RFC 9110 §8.8.3).
const WEAK: &str = "W/";

/// A change of a resource.
#[derive(Debug)]
pub(super) struct ResourceChange<'a> {
    pub(super) method: Method,
    /// The URL of the resource, or of an action on it.
    pub(super) url: Url,
    /// The URL of the resource.
    pub(super) resource: Url,
    pub(super) body: Option<&'a Value>,
    /// The version of the resource that was read.
    pub(super) etag: &'a ETag,
}

impl Redfish {
    /// Sends `change` with the first condition that the BMC accepts. An action has none, and a
    /// change of a resource without a version has none, unless the BMC requires one.
    pub(super) async fn change(&mut self, change: ResourceChange<'_>) -> Result<Response, Error> {
        let is_patch = change.method == Method::PATCH;
        let mut forms = self.conditions(is_patch, change.etag);
        // The next one is the last one.
        forms.reverse();
        let (mut etag, mut conflicts) = (change.etag.clone(), 0);
        let mut refused = Vec::new();
        let mut refusal = None;
        while let Some(form) = forms.pop() {
            let Some(condition) = condition(form, &etag) else { continue };
            if refused.contains(&condition) {
                continue;
            }
            let error = match self.send(change.request(condition.as_deref())).await {
                Err(error) if error.is_precondition() => error,
                result => {
                    let is_new = condition.is_some() || !refused.is_empty();
                    // Without a version it tells nothing of other resources.
                    if is_new && result.is_ok() && !etag.is_empty() {
                        self.note_condition(form, is_patch);
                    }
                    return result;
                }
            };
            refusal.get_or_insert(error);
            refused.push(condition);
            let read = self.get(&change.resource).await?.etag;
            if read != etag && conflicts < MAX_CONFLICTS {
                conflicts += 1;
                forms.push(form);
            }
            etag = read;
        }
        Err(refusal.unwrap_or_else(|| Error::Protocol("a change without a form".into())))
    }

    /// Returns the forms of the condition in the order in which they are sent.
    fn conditions(&self, is_patch: bool, etag: &ETag) -> Vec<IfMatch> {
        let mut forms = self.accepted.in_order::<IfMatch>();
        let first = match is_patch {
            true => etag.is_empty().then_some(IfMatch::Absent),
            false => Some(self.action_condition.unwrap_or(IfMatch::Absent)),
        };
        // The sort is stable: without a first one the order stays.
        forms.sort_by_key(|form| first.is_some_and(|first| *form != first));
        forms
    }

    fn note_condition(&mut self, form: IfMatch, is_patch: bool) {
        match is_patch {
            true => self.accepted.accept(form),
            false => self.action_condition = Some(form),
        }
    }
}

impl<'a> ResourceChange<'a> {
    fn request<'b>(&'b self, if_match: Option<&'b str>) -> Outgoing<'b> {
        Outgoing { method: self.method.clone(), url: self.url.clone(), body: self.body, if_match }
    }
}

/// Returns the header If-Match in this form for a resource of the version `etag`; inside, none for
/// a request without the header. None if the form does not exist for the version.
fn condition(form: IfMatch, etag: &ETag) -> Option<Option<String>> {
    let any = etag.header.as_ref().or(etag.property.as_ref());
    let text = match form {
        IfMatch::Header => etag.header.clone()?,
        IfMatch::Property => etag.property.clone()?,
        IfMatch::Strong => any?.strip_prefix(WEAK)?.to_owned(),
        IfMatch::Requoted => {
            let etag = any?;
            format!("\"{}\"", etag.strip_prefix(WEAK).unwrap_or(etag).replace('"', ""))
        }
        IfMatch::Weak => format!("{WEAK}{}", any.filter(|etag| !etag.starts_with(WEAK))?),
        IfMatch::Any => "*".into(),
        IfMatch::Absent => return Some(None),
    };
    HeaderValue::from_str(&text).ok().map(|_| Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forms::Form as _;

    /// The conditions for a version, in the order of trial, without repetitions.
    fn conditions(header: Option<&str>, property: Option<&str>) -> Vec<Option<String>> {
        let etag = ETag { header: header.map(Into::into), property: property.map(Into::into) };
        let mut all = Vec::new();
        for (form, _) in IfMatch::TABLE {
            if let Some(condition) = condition(*form, &etag).filter(|one| !all.contains(one)) {
                all.push(condition);
            }
        }
        all
    }

    fn texts(conditions: &[&str]) -> Vec<Option<String>> {
        let texts = conditions.iter().map(|text| Some((*text).to_owned()));
        texts.chain([None]).collect()
    }

    #[test]
    fn each_form_of_a_version_is_tried_once() {
        let weak = conditions(Some("W/\"1\""), Some("W/\"1\""));
        assert_eq!(weak, texts(&["W/\"1\"", "\"1\"", "*"]));
        let strong = conditions(Some("\"1\""), None);
        assert_eq!(strong, texts(&["\"1\"", "W/\"1\"", "*"]));
        let twice = conditions(Some("\"\"1\"\""), Some("W/\"1\""));
        let wanted = ["\"\"1\"\"", "W/\"1\"", "\"1\"", "W/\"\"1\"\"", "*"];
        assert_eq!(twice, texts(&wanted));
        assert_eq!(conditions(None, None), texts(&["*"]));
    }
}
