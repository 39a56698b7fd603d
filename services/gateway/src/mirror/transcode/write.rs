//! Writing of JSON from fields.

use std::collections::BTreeMap;
use std::io::Write as _;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use prost::Message as _;
use prost::encoding::WireType;
use prost_reflect::{DynamicMessage, MessageDescriptor, SerializeOptions};
use prost_types::{Duration, Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::TranscodeError;
use super::plan::{FieldPlan, MessagePlan, Shape, ValuePlan};
use super::wire::{WireField, WireValue, fields, value};

/// The deepest nesting of messages, as that of decoders.
const MAX_DEPTH: usize = 100;
/// The first second of the year 1, and the last of 9999, since 1970: times with JSON.
const TIMESTAMP_SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
/// The longest duration with JSON: 10,000 years.
const MAX_DURATION_SECONDS: u64 = 315_576_000_000;

const WRONG_TYPE: TranscodeError = TranscodeError::Broken("a field has another type");

/// The JSON that is written.
pub(super) struct Writer<'a> {
    plans: &'a [MessagePlan],
    json: Vec<u8>,
    depth: usize,
}

impl<'a> Writer<'a> {
    /// Begins the JSON of a message of `length` bytes.
    pub(super) fn new(plans: &'a [MessagePlan], length: usize) -> Self {
        Self { plans, json: Vec::with_capacity(length.saturating_mul(2) + 64), depth: 0 }
    }

    pub(super) fn into_json(self) -> Vec<u8> {
        self.json
    }

    /// Writes the message of `plan`.
    pub(super) fn message(
        &mut self,
        plan: &MessagePlan,
        bytes: &[u8],
    ) -> Result<(), TranscodeError> {
        if self.depth == MAX_DEPTH {
            return Err(TranscodeError::Broken("it is nested too deeply"));
        }
        self.depth += 1;
        match plan {
            MessagePlan::Object(_) => self.object(plan, bytes)?,
            MessagePlan::Timestamp => self.timestamp(bytes)?,
            MessagePlan::Duration => self.duration(bytes)?,
            MessagePlan::Reflected(message) => self.reflected(message, bytes)?,
        }
        self.depth -= 1;
        Ok(())
    }

    /// Writes the fields by their numbers. Encoders write one member of a oneof only; if there are more, all are written here.
    fn object(&mut self, plan: &MessagePlan, bytes: &[u8]) -> Result<(), TranscodeError> {
        let mut fields = fields(bytes)?;
        if !fields.is_sorted_by_key(|field| field.number) {
            fields.sort_by_key(|field| field.number);
        }
        self.json.push(b'{');
        let mut is_first = true;
        for values in fields.chunk_by(|a, b| a.number == b.number) {
            let Some(field) = plan.field(values[0].number) else { continue };
            let begin = self.json.len();
            if !is_first {
                self.json.push(b',');
            }
            self.json.extend_from_slice(field.key.as_bytes());
            if self.field(field, values)? {
                is_first = false;
            } else {
                self.json.truncate(begin);
            }
        }
        self.json.push(b'}');
        Ok(())
    }

    /// Writes the value of a field. Returns false, having written anything, if it is left out.
    fn field(
        &mut self,
        field: &FieldPlan,
        values: &[WireField<'_>],
    ) -> Result<bool, TranscodeError> {
        match &field.shape {
            Shape::List => self.list(&field.value, values),
            Shape::Map => self.map(&field.value, values),
            Shape::Plain | Shape::Optional => {
                let Some(last) = values.last() else { return Ok(false) };
                if let (ValuePlan::Message(number), [_, _, ..]) = (&field.value, values) {
                    let plan = &self.plans[*number];
                    return self.message(plan, &merged(values)?).map(|()| true);
                }
                if matches!(field.shape, Shape::Plain) && is_default(&field.value, last.value) {
                    return Ok(false);
                }
                self.value(&field.value, last.value).map(|()| true)
            }
        }
    }

    fn list(&mut self, plan: &ValuePlan, values: &[WireField<'_>]) -> Result<bool, TranscodeError> {
        let (begin, wire) = (self.json.len(), plan.wire_type());
        for field in values {
            let packed = field.value.bytes().filter(|_| wire != WireType::LengthDelimited);
            let Some(mut packed) = packed else {
                self.json.push(b',');
                self.value(plan, field.value)?;
                continue;
            };
            while !packed.is_empty() {
                self.json.push(b',');
                let one = value(wire, &mut packed)?;
                self.value(plan, one)?;
            }
        }
        let Some(first) = self.json.get_mut(begin) else { return Ok(false) };
        *first = b'[';
        self.json.push(b']');
        Ok(true)
    }

    /// Writes entries by their keys. The last one of several with a key counts.
    fn map(&mut self, plan: &ValuePlan, values: &[WireField<'_>]) -> Result<bool, TranscodeError> {
        let mut entries = BTreeMap::new();
        for entry in values {
            let entry = fields(entry.value.bytes().ok_or(WRONG_TYPE)?)?;
            let last = |number| entry.iter().rev().find(|it| it.number == number);
            let key = last(1).map_or(Some(&[][..]), |it| it.value.bytes());
            entries.insert(text(key.ok_or(WRONG_TYPE)?)?, last(2).map(|it| it.value));
        }
        self.json.push(b'{');
        for (n, (key, entry)) in entries.into_iter().enumerate() {
            if n > 0 {
                self.json.push(b',');
            }
            self.serialize(key)?;
            self.json.push(b':');
            self.value(plan, entry.unwrap_or_else(|| default(plan)))?;
        }
        self.json.push(b'}');
        Ok(true)
    }

    fn value(&mut self, plan: &ValuePlan, value: WireValue<'_>) -> Result<(), TranscodeError> {
        match (plan, value) {
            (ValuePlan::Bool, WireValue::Varint(it)) => self.serialize(&(it != 0)),
            (ValuePlan::Int32, WireValue::Varint(it)) => self.serialize(&int32(it)),
            (ValuePlan::Uint32, WireValue::Varint(it)) => self.serialize(&uint32(it)),
            // Numbers of 64 bits are texts: JSON's numbers are exact up to 53 bits.
            (ValuePlan::Int64, WireValue::Varint(it)) => {
                self.quoted(format_args!("{}", it.cast_signed()))
            }
            (ValuePlan::Uint64, WireValue::Varint(it)) => self.quoted(format_args!("{it}")),
            (ValuePlan::Double, WireValue::Fixed64(it)) => self.double(f64::from_bits(it)),
            (ValuePlan::Text, WireValue::Bytes(it)) => self.serialize(text(it)?),
            (ValuePlan::Bytes, WireValue::Bytes(it)) => self.base64(it),
            (ValuePlan::JsonObject, WireValue::Bytes(it)) => {
                let object = serde_json::from_slice::<Value>(it).ok().filter(Value::is_object);
                match object {
                    Some(object) => self.serialize(&object),
                    None => self.base64(it),
                }
            }
            (ValuePlan::Enum(names), WireValue::Varint(it)) => {
                let number = int32(it);
                match names.binary_search_by_key(&number, |(number, _)| *number) {
                    Ok(at) => {
                        self.json.extend_from_slice(names[at].1.as_bytes());
                        Ok(())
                    }
                    Err(_) => self.serialize(&number),
                }
            }
            (ValuePlan::Message(number), WireValue::Bytes(it)) => {
                self.message(&self.plans[*number], it)
            }
            _ => Err(WRONG_TYPE),
        }
    }

    fn double(&mut self, value: f64) -> Result<(), TranscodeError> {
        if value.is_finite() {
            return self.serialize(&value);
        }
        let positive = if value > 0.0 { "Infinity" } else { "-Infinity" };
        self.serialize(if value.is_nan() { "NaN" } else { positive })
    }

    fn base64(&mut self, bytes: &[u8]) -> Result<(), TranscodeError> {
        self.quoted(format_args!("{}", Base64Display::new(bytes, &STANDARD)))
    }

    fn timestamp(&mut self, bytes: &[u8]) -> Result<(), TranscodeError> {
        let time = Timestamp::decode(bytes).map_err(|_| TranscodeError::Broken("no time"))?;
        let is_valid =
            TIMESTAMP_SECONDS.contains(&time.seconds) && (0..1_000_000_000).contains(&time.nanos);
        if !is_valid {
            let text = format!("a time of {} s and {} ns", time.seconds, time.nanos);
            return Err(TranscodeError::NoJson(text));
        }
        self.quoted(format_args!("{time}"))
    }

    fn duration(&mut self, bytes: &[u8]) -> Result<(), TranscodeError> {
        let time = Duration::decode(bytes).map_err(|_| TranscodeError::Broken("no duration"))?;
        let (seconds, nanos) = (time.seconds, time.nanos);
        let has_one_sign = seconds == 0 || nanos == 0 || (seconds < 0) == (nanos < 0);
        let is_valid = seconds.unsigned_abs() <= MAX_DURATION_SECONDS
            && nanos.unsigned_abs() < 1_000_000_000
            && has_one_sign;
        if !is_valid {
            let text = format!("a duration of {seconds} s and {nanos} ns");
            return Err(TranscodeError::NoJson(text));
        }
        self.quoted(format_args!("{time}"))
    }

    fn reflected(
        &mut self,
        message: &MessageDescriptor,
        bytes: &[u8],
    ) -> Result<(), TranscodeError> {
        let decoded = DynamicMessage::decode(message.clone(), bytes);
        let decoded = decoded.map_err(|_| TranscodeError::Broken("no well-known type"))?;
        let options = SerializeOptions::new().use_proto_field_name(true);
        let mut serializer = serde_json::Serializer::new(&mut self.json);
        let written = decoded.serialize_with_options(&mut serializer, &options);
        written.map_err(|error| TranscodeError::NoJson(error.to_string()))
    }

    fn serialize(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), TranscodeError> {
        let written = serde_json::to_writer(&mut self.json, value);
        written.map_err(|error| TranscodeError::NoJson(error.to_string()))
    }

    /// Writes a text without characters that JSON escapes.
    fn quoted(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), TranscodeError> {
        let written = write!(self.json, "\"{text}\"");
        written.map_err(|error| TranscodeError::NoJson(error.to_string()))
    }
}

/// Returns a message that was sent in parts: their bytes one after the other.
fn merged(values: &[WireField<'_>]) -> Result<Vec<u8>, TranscodeError> {
    let parts: Option<Vec<_>> = values.iter().map(|field| field.value.bytes()).collect();
    Ok(parts.ok_or(WRONG_TYPE)?.concat())
}

/// True if a plain field with this value is left out.
fn is_default(plan: &ValuePlan, value: WireValue<'_>) -> bool {
    match value {
        WireValue::Varint(it) if plan.is_narrow() => uint32(it) == 0,
        WireValue::Varint(it) => it == 0,
        WireValue::Fixed32(it) => it == 0,
        WireValue::Fixed64(it) => it == 0,
        WireValue::Bytes(it) => it.is_empty(),
    }
}

/// Returns the value of an entry of a map that has only a key.
fn default(plan: &ValuePlan) -> WireValue<'static> {
    match plan.wire_type() {
        WireType::Varint => WireValue::Varint(0),
        WireType::SixtyFourBit => WireValue::Fixed64(0),
        WireType::ThirtyTwoBit => WireValue::Fixed32(0),
        WireType::LengthDelimited | WireType::StartGroup | WireType::EndGroup => {
            WireValue::Bytes(&[])
        }
    }
}

fn text(bytes: &[u8]) -> Result<&str, TranscodeError> {
    std::str::from_utf8(bytes).map_err(|_| TranscodeError::Broken("a text is not UTF-8"))
}

/// Numbers of 32 bits are the lower half of what was sent.
#[expect(clippy::cast_possible_truncation, reason = "protobuf says so")]
fn uint32(value: u64) -> u32 {
    value as u32
}

fn int32(value: u64) -> i32 {
    uint32(value).cast_signed()
}
