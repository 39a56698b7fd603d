//! The JSON of messages, compared with that of prost-reflect.

use proptest::prelude::*;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage as _,
    SerializeOptions, Value as Field,
};
use serde_json::{Value, json};
use tinwright::hardware::v1::{Hardware, ListHardwareResponse};
use tinwright::options::is_set;

use super::*;

fn pool() -> &'static DescriptorPool {
    tinwright::json::pool().unwrap()
}

fn message(name: &str) -> MessageDescriptor {
    pool().get_message_by_name(name).unwrap()
}

fn json_of(message: &MessageDescriptor, bytes: &[u8]) -> Value {
    serde_json::from_slice(&Transcoder::new(pool()).json(message, bytes).unwrap()).unwrap()
}

/// Numbers that decide what a message has.
struct Choices(std::vec::IntoIter<u64>);

impl Choices {
    fn next(&mut self) -> u64 {
        self.0.next().unwrap_or_default()
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn text(&mut self) -> String {
        let texts = ["", "a", "a \"b\"\n\u{1}", "größe", "\u{1f980}", "10.0.0.1"];
        texts[usize::try_from(self.below(6)).unwrap()].to_owned()
    }

    fn message(&mut self, descriptor: MessageDescriptor, depth: usize) -> DynamicMessage {
        let mut message = DynamicMessage::new(descriptor.clone());
        for field in descriptor.fields() {
            // JSON objects are not prost-reflect's.
            let has = depth < 4 && self.below(3) > 0 && !is_set(&field, "json_object");
            if has && let Some(value) = self.field(&field, depth) {
                message.set_field(&field, value);
            }
        }
        message
    }

    fn field(&mut self, field: &FieldDescriptor, depth: usize) -> Option<Field> {
        if field.is_map() {
            let Kind::Message(entry) = field.kind() else { return None };
            let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
            let mut entry = || {
                let key = match self.value(&key, depth) {
                    Field::String(key) => MapKey::String(key),
                    Field::Bool(key) => MapKey::Bool(key),
                    Field::I32(key) => MapKey::I32(key),
                    Field::I64(key) => MapKey::I64(key),
                    Field::U32(key) => MapKey::U32(key),
                    Field::U64(key) => MapKey::U64(key),
                    key @ (Field::F32(_)
                    | Field::F64(_)
                    | Field::Bytes(_)
                    | Field::EnumNumber(_)
                    | Field::Message(_)
                    | Field::List(_)
                    | Field::Map(_)) => panic!("no key of a map: {key}"),
                };
                (key, self.value(&value, depth))
            };
            return Some(Field::Map([entry(), entry()].into()));
        }
        if field.is_list() {
            let count = self.below(3);
            return Some(Field::List((0..count).map(|_| self.value(field, depth)).collect()));
        }
        Some(self.value(field, depth))
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
    fn value(&mut self, field: &FieldDescriptor, depth: usize) -> Field {
        let number = if self.below(4) == 0 { 0 } else { self.next() };
        match field.kind() {
            // 48 bits: the test reads the JSON by serde_json, which may get the last bit of longer numbers wrong.
            Kind::Double => {
                Field::F64([(number >> 16) as f64, f64::NAN, -1.5][number as usize % 3])
            }
            Kind::Float => Field::F32([f32::INFINITY, f32::NEG_INFINITY, 0.1][number as usize % 3]),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Field::I32(number as i32),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Field::I64(number.cast_signed()),
            Kind::Uint32 | Kind::Fixed32 => Field::U32(number as u32),
            Kind::Uint64 | Kind::Fixed64 => Field::U64(number),
            Kind::Bool => Field::Bool(number % 2 == 1),
            Kind::String => Field::String(self.text()),
            Kind::Bytes => {
                Field::Bytes(number.to_be_bytes()[..number as usize % 8].to_vec().into())
            }
            Kind::Enum(_) => Field::EnumNumber((number % 7) as i32),
            Kind::Message(message) => Field::Message(self.of_type(message, number, depth)),
        }
    }

    /// Returns a message that has JSON.
    fn of_type(&mut self, message: MessageDescriptor, number: u64, depth: usize) -> DynamicMessage {
        let nanos = [0, 500_000_000, 1_000, 7][usize::try_from(number % 4).unwrap()];
        let mut dynamic = DynamicMessage::new(message.clone());
        match message.full_name() {
            "google.protobuf.Timestamp" | "google.protobuf.Duration" => {
                let seconds = i64::try_from(number % 200_000_000_000).unwrap();
                dynamic.set_field_by_name("seconds", Field::I64(seconds));
                dynamic.set_field_by_name("nanos", Field::I32(nanos));
            }
            "google.protobuf.FieldMask" => {
                let paths = ["name", "boot_url.inner"].map(|path| Field::String(path.to_owned()));
                dynamic.set_field_by_name("paths", Field::List(paths.into()));
            }
            "google.protobuf.Any" | "google.protobuf.Struct" | "google.protobuf.Value" => {
                let text =
                    r#"{"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1.5s"}"#;
                let mut json = serde_json::Deserializer::from_str(text);
                dynamic = DynamicMessage::deserialize(message, &mut json).unwrap();
            }
            _ => dynamic = self.message(message, depth + 1),
        }
        dynamic
    }
}

proptest! {
    #[test]
    fn every_message_has_the_json_of_prost_reflect(
        choices in prop::collection::vec(prop_oneof![0..9_u64, any::<u64>()], 200),
        number in any::<usize>(),
    ) {
        let ours = pool().all_messages().filter(|it| it.full_name().starts_with("tinwright."));
        let ours: Vec<_> = ours.filter(|it| !it.is_map_entry()).collect();
        let message = Choices(choices.into_iter()).message(ours[number % ours.len()].clone(), 0);
        let options = SerializeOptions::new().use_proto_field_name(true);
        let expected = message.serialize_with_options(serde_json::value::Serializer, &options);
        let json = json_of(&message.descriptor(), &message.encode_to_vec());
        prop_assert_eq!(json, expected.unwrap());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _any_result = Transcoder::new(pool())
            .json(&message("tinwright.hardware.v1.ListHardwareResponse"), &bytes);
    }
}

#[test]
fn an_object_in_a_page_is_an_object_beside_messages_without_one() {
    let machine = |name: &str, extra: &[u8]| Hardware {
        name: name.to_owned(),
        extra: extra.to_vec(),
        ..Hardware::default()
    };
    let written = |hardware| {
        let page = ListHardwareResponse { hardware, ..ListHardwareResponse::default() };
        let page = page.encode_to_vec();
        json_of(&message("tinwright.hardware.v1.ListHardwareResponse"), &page)["hardware"].clone()
    };
    let plain = || machine("a", b"");
    assert_eq!(written(vec![plain()]), json!([{"name": "a"}]));
    let object = machine("b", br#"{"c": [1]}"#);
    let both = json!([{"name": "a"}, {"name": "b", "extra": {"c": [1]}}]);
    assert_eq!(written(vec![plain(), object]), both);
    let broken = machine("c", b"[1");
    assert_eq!(written(vec![broken]), json!([{"name": "c", "extra": "WzE="}]));
}

#[test]
fn a_message_in_parts_is_merged_and_the_last_scalar_counts() {
    let response = message("tinwright.hardware.v1.GetHardwareResponse");
    let mut bytes = Vec::new();
    for (name, id) in [("a", "x"), ("b", "")] {
        let (name, id) = (name.to_owned(), id.to_owned());
        let part = Hardware { id, name, ..Hardware::default() }.encode_to_vec();
        encode_key(1, WireType::LengthDelimited, &mut bytes);
        encode_varint(part.len() as u64, &mut bytes);
        bytes.extend(part);
    }
    // A field that the descriptors do not have.
    encode_key(900, WireType::Varint, &mut bytes);
    bytes.push(7);
    assert_eq!(json_of(&response, &bytes), json!({"hardware": {"id": "x", "name": "b"}}));
}

#[test]
fn a_default_that_was_sent_is_left_out() {
    let hardware = message("tinwright.hardware.v1.Hardware");
    for (name, wire) in [("revision", WireType::Varint), ("name", WireType::LengthDelimited)] {
        let mut bytes = Vec::new();
        encode_key(hardware.get_field_by_name(name).unwrap().number(), wire, &mut bytes);
        bytes.push(0);
        assert_eq!(json_of(&hardware, &bytes), json!({}), "{name}");
    }
}

#[test]
fn broken_messages_are_errors() {
    let response = message("tinwright.hardware.v1.GetHardwareResponse");
    let transcoder = Transcoder::new(pool());
    for bytes in [&b"\x0a"[..], b"\x0a\x05a", b"\x08\x01", b"\x0b", b"\x0a\x03\x0a\x01\xff"] {
        let result = transcoder.json(&response, bytes);
        assert!(matches!(result, Err(TranscodeError::Broken(_))), "{bytes:?}: {result:?}");
    }
    let late = Hardware {
        create_time: Some(prost_types::Timestamp { seconds: 253_402_300_800, nanos: 0 }),
        ..Hardware::default()
    };
    let result = transcoder.json(&message("tinwright.hardware.v1.Hardware"), &late.encode_to_vec());
    assert!(matches!(result, Err(TranscodeError::NoJson(_))), "{result:?}");
}

#[test]
fn the_revision_of_an_object_and_the_case_of_an_event_are_found() {
    let transcoder = Transcoder::new(pool());
    let hardware = Hardware { revision: 7, ..Hardware::default() };
    let response = tinwright::hardware::v1::GetHardwareResponse { hardware: Some(hardware) };
    let get = message("tinwright.hardware.v1.GetHardwareResponse");
    assert_eq!(transcoder.revision(&get, &response.encode_to_vec()), Some(7));
    assert_eq!(transcoder.revision(&get, b""), Some(0));
    let list = message("tinwright.hardware.v1.ListHardwareResponse");
    assert_eq!(transcoder.revision(&list, b""), None);
    let watch = message("tinwright.hardware.v1.WatchHardwareResponse");
    let cases: Vec<_> = watch.oneofs().flat_map(|it| it.fields().collect::<Vec<_>>()).collect();
    for case in cases {
        let mut event = DynamicMessage::new(watch.clone());
        let value = event.get_field(&case).into_owned();
        event.set_field(&case, value);
        assert_eq!(transcoder.case(&watch, &event.encode_to_vec()), Some(case.name()));
    }
    assert_eq!(transcoder.case(&watch, b""), None);
}
