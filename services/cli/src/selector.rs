//! Selectors of labels, in the grammar of kubectl: requirements separated by commas. All of them have
//! to be met.
//!
//! ```text
//! key=value   key==value   key!=value   key   !key   key in (a,b)   key notin (a,b)
//! ```
//!
//! An object without the key meets `!=`, `notin` and `!key`, as in kubectl.

use std::collections::BTreeMap;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Requirements. An object has to meet all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(pub Vec<Requirement>);

/// A requirement of the labels of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    /// The values that fulfil it; any if there are none.
    values: Vec<String>,
    /// True if it is met by other values and by the absence of the key.
    is_negative: bool,
}

impl Requirement {
    /// Returns key and value, if that is all that is required.
    pub fn equality(&self) -> Option<(&str, &str)> {
        match self.values.as_slice() {
            [value] if !self.is_negative => Some((&self.key, value)),
            _ => None,
        }
    }

    /// True if an object with these labels meets it.
    pub fn is_met(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let is_met = value.is_some_and(|it| self.values.is_empty() || self.values.contains(it));
        is_met != self.is_negative
    }
}

/// Parses a selector.
pub fn parse(text: &str) -> Result<Selector, String> {
    let requirements: Result<Vec<_>, _> = split(text)?.into_iter().map(requirement).collect();
    requirements.map(Selector)
}

/// Splits `text` at commas outside of parentheses.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut begin, mut is_inside) = (Vec::new(), 0, false);
    for (place, character) in text.char_indices() {
        match (character, is_inside) {
            ('(', false) => is_inside = true,
            (')', true) => is_inside = false,
            ('(' | ')', _) => return Err("a parenthesis is not closed, or not opened".into()),
            (',', false) => {
                parts.push(&text[begin..place]);
                begin = place + 1;
            }
            _ => {}
        }
    }
    if is_inside {
        return Err("a parenthesis is not closed".into());
    }
    parts.push(&text[begin..]);
    Ok(parts)
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let text = text.trim();
    let made = |key: &str, values: Vec<String>, is_negative| {
        let key = checked_key(key.trim())?;
        Ok(Requirement { key, values, is_negative })
    };
    if let Some((key, list)) = text.split_once('(') {
        let words: Vec<_> = key.split_whitespace().collect();
        let list = list.strip_suffix(')').ok_or_else(|| format!("{text:?} goes on after )"))?;
        let values = list.split(',').map(checked_value).collect::<Result<Vec<_>, _>>()?;
        return match words.as_slice() {
            [key, "in"] => made(key, values, false),
            [key, "notin"] => made(key, values, true),
            _ => Err(format!("{text:?} is neither key in (a,b) nor key notin (a,b)")),
        };
    }
    let pair = |operator: &'static str| text.split_once(operator);
    if let Some((key, value)) = pair("!=") {
        return made(key, vec![checked_value(value)?], true);
    }
    if let Some((key, value)) = pair("==").or_else(|| pair("=")) {
        return made(key, vec![checked_value(value)?], false);
    }
    match text.strip_prefix('!') {
        Some(key) => made(key, Vec::new(), true),
        None => made(text, Vec::new(), false),
    }
}

fn checked_key(key: &str) -> Result<String, String> {
    let is_valid =
        !key.is_empty() && !key.contains(|it: char| it.is_whitespace() || "=!<>()".contains(it));
    is_valid.then(|| key.to_owned()).ok_or_else(|| format!("{key:?} is not a key of a label"))
}

fn checked_value(value: &str) -> Result<String, String> {
    let value = value.trim();
    let is_valid = !value.contains(|it: char| it.is_whitespace() || "=!<>()".contains(it));
    is_valid.then(|| value.to_owned()).ok_or_else(|| format!("{value:?} is not a value of a label"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns which of three objects `text` selects: in rack a, in rack b, and without a rack.
    fn selected(text: &str) -> [bool; 3] {
        let selector = parse(text).unwrap();
        let labels = |rack: &str| {
            Labels::from([("rack".to_owned(), rack.to_owned()), ("ssd".into(), "".into())])
        };
        [labels("a"), labels("b"), Labels::new()]
            .map(|labels| selector.0.iter().all(|it| it.is_met(&labels)))
    }

    #[test]
    fn requirements_are_those_of_kubectl() {
        for (text, wanted) in [
            ("rack=a", [true, false, false]),
            ("rack == a", [true, false, false]),
            ("rack!=a", [false, true, true]),
            ("rack", [true, true, false]),
            ("!rack", [false, false, true]),
            ("rack in (a, c)", [true, false, false]),
            ("rack notin (a,c)", [false, true, true]),
            ("rack,rack!=a", [false, true, false]),
            ("ssd=", [true, true, false]),
            ("rack in (a,b),ssd", [true, true, false]),
        ] {
            assert_eq!(selected(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_selector_is_refused() {
        for wrong in [
            "",
            "=a",
            "rack=a,",
            "rack in a",
            "rack in (a",
            "rack in a)",
            "rack of (a)",
            "a b",
            "a=b=c",
            "rack>1",
            "rack in (a) b",
            "!",
            "a=b c",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_server_selects_by_equality() {
        let equal = |text: &str| parse(text).unwrap().0[0].equality().is_some();
        assert!(equal("rack=a") && equal("rack in (a)"));
        assert!(!equal("rack!=a") && !equal("rack") && !equal("rack in (a,b)"));
    }
}
