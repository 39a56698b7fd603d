//! Digests of secret fields: the values themselves are not stored.

use std::collections::BTreeMap;

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign, verify};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use runtime::Secret;
use runtime::secret::{CryptoError, SiteKey};

/// The digests of a credential's fields.
#[derive(Clone, Debug)]
pub struct Digests {
    key: Vec<u8>,
    by_field: BTreeMap<String, Vec<u8>>,
}

impl Digests {
    /// Computes the digests of `fields` with a new key: equal values of two credentials have different digests.
    pub fn of(fields: &BTreeMap<String, String>) -> Result<Self, CryptoError> {
        let key = random_bytes()?.expose().to_vec();
        let hmac = Key::new(HMAC_SHA256, &key);
        let digest = |(name, value): (&String, &String)| {
            (name.clone(), sign(&hmac, &message(name, value)).as_ref().to_vec())
        };
        let by_field = fields.iter().map(digest).collect();
        Ok(Self { key, by_field })
    }

    /// The digests that were stored as [`into_parts`](Self::into_parts).
    pub fn from_parts(key: Vec<u8>, by_field: BTreeMap<String, Vec<u8>>) -> Self {
        Self { key, by_field }
    }

    /// Returns the key, and the digests by field.
    pub fn into_parts(self) -> (Vec<u8>, BTreeMap<String, Vec<u8>>) {
        (self.key, self.by_field)
    }

    /// True if `fields` has all fields of these digests. The time does not depend on the values.
    pub fn match_all(&self, fields: &BTreeMap<String, String>) -> bool {
        let hmac = Key::new(HMAC_SHA256, &self.key);
        let has = |(name, digest): (&String, &Vec<u8>)| {
            let value = fields.get(name);
            value.is_some_and(|value| verify(&hmac, &message(name, value), digest).is_ok())
        };
        // Not `all`, which ends at the first wrong field.
        let matching = self.by_field.iter().filter(|field| has(*field)).count();
        matching == self.by_field.len() && !self.by_field.is_empty()
    }
}

/// Generates the API key of the credential `id`.
pub fn generate_api_key(id: &str) -> Result<Secret<String>, CryptoError> {
    let secret = random_bytes()?;
    Ok(Secret::new(format!("tw_{id}_{}", URL_SAFE_NO_PAD.encode(secret.expose()))))
}

/// Draws 32 bytes.
fn random_bytes() -> Result<SiteKey, CryptoError> {
    SiteKey::random()
}

fn message(name: &str, value: &str) -> Vec<u8> {
    [name.as_bytes(), &[0], value.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn all_fields_have_to_match_and_others_are_ignored() {
        let digests = Digests::of(&fields(&[("key", "k"), ("secret", "s")])).unwrap();
        assert!(digests.match_all(&fields(&[("key", "k"), ("secret", "s"), ("region", "r")])));
        for wrong in [&[("key", "k")][..], &[("key", "k"), ("secret", "t")], &[]] {
            assert!(!digests.match_all(&fields(wrong)), "{wrong:?}");
        }
        let swapped = fields(&[("key", "s"), ("secret", "k")]);
        assert!(!digests.match_all(&swapped));
    }

    #[test]
    fn nothing_matches_digests_without_fields() {
        let empty = Digests::of(&BTreeMap::new()).unwrap();
        assert!(!empty.match_all(&BTreeMap::new()));
    }

    #[test]
    fn equal_values_of_two_credentials_have_different_digests() {
        let values = fields(&[("key", "k")]);
        let (one, other) = (Digests::of(&values).unwrap(), Digests::of(&values).unwrap());
        assert_ne!(one.by_field, other.by_field);
    }
}
