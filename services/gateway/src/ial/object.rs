//! Strict reading of JSON objects: each value has the JSON type that it must have, and each fault names its place.
//!
//! Values stay the text that was sent ([`RawValue`]) until they are read, so that numbers of any size come back as they were.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::fault::{Code, Fault};

/// The JSON types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Null,
    Boolean,
    Number,
    Text,
    Array,
    Object,
}

impl Kind {
    /// Returns the type of a value, found by its first character.
    fn of(raw: &RawValue) -> Self {
        match raw.get().trim_ascii_start().as_bytes().first() {
            Some(b'n') => Self::Null,
            Some(b't' | b'f') => Self::Boolean,
            Some(b'"') => Self::Text,
            Some(b'[') => Self::Array,
            Some(b'{') => Self::Object,
            _ => Self::Number,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Number => "a number",
            Self::Text => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }
}

/// The members of an object, in their order in the document.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    members.push((name, map.next_value::<&RawValue>()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// An object of a request, and its place there.
pub struct Object<'a> {
    members: Vec<(String, &'a RawValue)>,
    /// JSON pointer.
    place: String,
}

/// Values may be secrets: only the names are printed.
impl fmt::Debug for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.members.iter().map(|(name, _)| name).collect();
        f.debug_struct("Object").field("place", &self.place).field("names", &names).finish()
    }
}

impl<'a> Object<'a> {
    /// Reads a document, which must be one object.
    pub fn document(body: &'a [u8]) -> Result<Self, Fault> {
        let fault = |error: &dyn fmt::Display| {
            syntax("the body is not JSON").with_detail(error.to_string())
        };
        let text = std::str::from_utf8(body).map_err(|error| fault(&error))?;
        // Read as any value first: the fault of an array is another one than that of text that is not JSON.
        let raw: &RawValue = serde_json::from_str(text).map_err(|error| fault(&error))?;
        Self::of(raw, String::new())
    }

    fn of(raw: &'a RawValue, place: String) -> Result<Self, Fault> {
        expect(raw, Kind::Object, &place)?;
        let members: Members<'a> = parse(raw, &place)?;
        Ok(Self { members: members.0, place })
    }

    /// Refuses members of the same name: some parsers take the first one, others the last one.
    pub fn refuse_duplicates(&self) -> Result<(), Fault> {
        let mut names: Vec<_> = self.members.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(syntax("a key is there twice").at(self.pointer(pair[0]))),
            None => Ok(()),
        }
    }

    /// Returns the JSON pointer to a member.
    pub fn pointer(&self, name: &str) -> String {
        format!("{}/{}", self.place, name.replace('~', "~0").replace('/', "~1"))
    }

    /// Returns the text of a member as it was sent; none if it is absent or null. Of several, the last one counts.
    pub fn raw(&self, name: &str) -> Option<&'a RawValue> {
        let (_, raw) = self.members.iter().rfind(|(known, _)| known == name)?;
        (Kind::of(raw) != Kind::Null).then_some(*raw)
    }

    fn typed(&self, name: &str, kind: Kind) -> Result<Option<&'a RawValue>, Fault> {
        let raw = self.raw(name);
        raw.map(|raw| expect(raw, kind, &self.pointer(name)).map(|()| raw)).transpose()
    }

    /// Returns a string; none if it is absent or null.
    pub fn text(&self, name: &str) -> Result<Option<String>, Fault> {
        let raw = self.typed(name, Kind::Text)?;
        raw.map(|raw| parse(raw, &self.pointer(name))).transpose()
    }

    /// Returns a string that must be there and not be empty.
    pub fn required_text(&self, name: &str) -> Result<String, Fault> {
        self.text(name)?.filter(|text| !text.is_empty()).ok_or_else(|| self.missing(name))
    }

    /// Returns a boolean; none if it is absent or null.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, Fault> {
        let raw = self.typed(name, Kind::Boolean)?;
        raw.map(|raw| parse(raw, &self.pointer(name))).transpose()
    }

    /// Returns a number without sign, fraction and exponent; none if it is absent or null. One that is too large is the largest one.
    pub fn integer(&self, name: &str) -> Result<Option<u64>, Fault> {
        let Some(raw) = self.typed(name, Kind::Number)? else { return Ok(None) };
        let text = raw.get();
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            let title = "the number is not an integer, or is negative";
            return Err(Fault::new(Code::InvalidArgument, title).at(self.pointer(name)));
        }
        Ok(Some(text.parse().unwrap_or(u64::MAX)))
    }

    /// Returns an object; none if it is absent or null.
    pub fn object(&self, name: &str) -> Result<Option<Self>, Fault> {
        self.raw(name).map(|raw| Self::of(raw, self.pointer(name))).transpose()
    }

    /// Returns an object that must be there.
    pub fn required_object(&self, name: &str) -> Result<Self, Fault> {
        self.object(name)?.ok_or_else(|| self.missing(name))
    }

    /// Returns the text of an object that is not looked into; none if it is absent or null.
    pub fn open_object(&self, name: &str) -> Result<Option<&'a RawValue>, Fault> {
        self.typed(name, Kind::Object)
    }

    /// Returns the fault that a required member is absent, null or empty.
    pub fn missing(&self, name: &str) -> Fault {
        Fault::new(Code::MissingArgument, "a required key is absent, null or empty")
            .at(self.pointer(name))
    }

    /// Returns the fault that a member's value cannot be used.
    pub fn invalid(&self, name: &str, title: &'static str) -> Fault {
        Fault::new(Code::InvalidArgument, title).at(self.pointer(name))
    }
}

fn expect(raw: &RawValue, wanted: Kind, place: &str) -> Result<(), Fault> {
    let kind = Kind::of(raw);
    if kind == wanted {
        return Ok(());
    }
    let fault = syntax("a value has the wrong JSON type");
    let fault = fault.with_detail(format!("{} instead of {}", kind.word(), wanted.word()));
    // The document itself has no pointer.
    Err(if place.is_empty() { fault } else { fault.at(place) })
}

fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue, place: &str) -> Result<T, Fault> {
    serde_json::from_str(raw.get()).map_err(|error| {
        let fault = syntax("a value cannot be read").with_detail(error.to_string());
        if place.is_empty() { fault } else { fault.at(place) }
    })
}

fn syntax(title: &'static str) -> Fault {
    Fault::new(Code::InvalidSyntax, title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_types_and_faults_name_their_place() {
        let body = br#"{"a": {"b": 7, "c": "x", "d": null, "e": "", "f~/": "\ud800"}, "g": 1.5}"#;
        let document = Object::document(body).unwrap();
        let inner = document.required_object("a").unwrap();
        assert_eq!(inner.text("c").unwrap().as_deref(), Some("x"));
        let wrong = inner.text("b").unwrap_err();
        assert_eq!((wrong.code, wrong.source.as_deref()), (Code::InvalidSyntax, Some("/a/b")));
        assert_eq!(inner.text("d").unwrap(), None);
        for missing in ["d", "e", "x"] {
            let fault = inner.required_text(missing).unwrap_err();
            assert_eq!(
                (fault.code, fault.source),
                (Code::MissingArgument, Some(format!("/a/{missing}")))
            );
        }
        assert_eq!(inner.text("f~/").unwrap_err().source.as_deref(), Some("/a/f~0~1"));
        assert_eq!(document.integer("g").unwrap_err().code, Code::InvalidArgument);
        assert_eq!(inner.integer("b").unwrap(), Some(7));
    }

    #[test]
    fn large_integers_keep_their_digits() {
        let body = br#"{"extra": {"n": 9007199254740993, "m": 123456789012345678901234567890}}"#;
        let document = Object::document(body).unwrap();
        let raw = document.open_object("extra").unwrap().unwrap();
        assert_eq!(raw.get(), r#"{"n": 9007199254740993, "m": 123456789012345678901234567890}"#);
    }

    #[test]
    fn what_is_no_object_is_no_document() {
        for body in ["", " ", "[]", "1", "null", "{", "{}x", "\u{feff}{}", r#"{"a":1,}"#, "{'a':1}"]
        {
            let fault = Object::document(body.as_bytes()).unwrap_err();
            assert_eq!((fault.code, fault.source), (Code::InvalidSyntax, None), "{body}");
        }
        assert!(Object::document(b"{\"a\":\"\xff\"}").is_err());
        let deep = format!("{{\"a\":{}", "[".repeat(100_000));
        assert_eq!(Object::document(deep.as_bytes()).unwrap_err().code, Code::InvalidSyntax);
    }

    #[test]
    fn keys_that_are_there_twice_are_found_however_they_are_written() {
        let object = Object::document(br#"{"api_key": "a", "api\u005fkey": "b"}"#).unwrap();
        assert_eq!(object.refuse_duplicates().unwrap_err().source.as_deref(), Some("/api_key"));
    }
}
