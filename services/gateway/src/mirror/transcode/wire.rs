//! The fields of an encoded message (protobuf's wire format).

use bytes::Buf as _;
use prost::encoding::{WireType, decode_key, decode_varint};
use smallvec::SmallVec;

use super::TranscodeError;

/// Fields of a message, as many without an allocation as most objects have.
pub(super) type Fields<'a> = SmallVec<[WireField<'a>; 24]>;

/// A field of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireField<'a> {
    pub(super) number: u32,
    pub(super) value: WireValue<'a>,
}

/// A value, as it is encoded.
#[derive(Clone, Copy, Debug)]
pub(super) enum WireValue<'a> {
    Varint(u64),
    Fixed32(u32),
    Fixed64(u64),
    /// A text, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> WireValue<'a> {
    pub(super) fn varint(self) -> Option<u64> {
        match self {
            Self::Varint(number) => Some(number),
            Self::Fixed32(_) | Self::Fixed64(_) | Self::Bytes(_) => None,
        }
    }

    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Varint(_) | Self::Fixed32(_) | Self::Fixed64(_) => None,
        }
    }
}

/// Returns the fields of a message in wire order.
pub(super) fn fields(mut bytes: &[u8]) -> Result<Fields<'_>, TranscodeError> {
    let mut fields = Fields::new();
    while !bytes.is_empty() {
        let key = decode_key(&mut bytes);
        let (number, wire) = key.map_err(|_| TranscodeError::Broken("no key of a field"))?;
        let value = value(wire, &mut bytes)?;
        fields.push(WireField { number, value });
    }
    Ok(fields)
}

/// Takes a value from the beginning of `bytes`.
pub(super) fn value<'a>(
    wire: WireType,
    bytes: &mut &'a [u8],
) -> Result<WireValue<'a>, TranscodeError> {
    let short = |_| TranscodeError::Broken("it ends within a field");
    Ok(match wire {
        WireType::Varint => WireValue::Varint(varint(bytes)?),
        WireType::ThirtyTwoBit => WireValue::Fixed32(bytes.try_get_u32_le().map_err(short)?),
        WireType::SixtyFourBit => WireValue::Fixed64(bytes.try_get_u64_le().map_err(short)?),
        WireType::LengthDelimited => {
            let length = usize::try_from(varint(bytes)?).ok();
            let parts = length.and_then(|length| bytes.split_at_checked(length));
            let (part, rest) = parts.ok_or(TranscodeError::Broken("it ends within a field"))?;
            *bytes = rest;
            WireValue::Bytes(part)
        }
        WireType::StartGroup | WireType::EndGroup => {
            return Err(TranscodeError::Broken("it has a group"));
        }
    })
}

fn varint(bytes: &mut &[u8]) -> Result<u64, TranscodeError> {
    decode_varint(bytes).map_err(|_| TranscodeError::Broken("no number"))
}
