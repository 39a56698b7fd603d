//! Options of the kernel's RBD client.

use tinwright::node::v1::attachment::RbdOptions;

use crate::error::ApiError;
use crate::fields::Fields;
use crate::schema::tables;
use crate::secrets::Secrets;

/// Converts options, which have the same names in both forms.
macro_rules! options {
    (texts: $($text:ident)*; numbers: $($number:ident)*; switches: $($switch:ident)*;) => {
        fn read(mut fields: Fields) -> RbdOptions {
            RbdOptions {
                secret: fields.text("secret").unwrap_or_default(),
                $($text: fields.text(stringify!($text)).unwrap_or_default(),)*
                $($number: fields.integer(stringify!($number)).unwrap_or_default(),)*
                $($switch: fields.boolean(stringify!($switch)).unwrap_or_default(),)*
            }
        }

        fn without_secret(options: &RbdOptions) -> Fields {
            Fields::new(&tables::RBD_OPTIONS)
                $(.with(stringify!($text), &options.$text))*
                $(.with(stringify!($number), options.$number))*
                $(.with(stringify!($switch), options.$switch))*
        }
    };
}

options! {
    texts: fsid ip name namespace;
    numbers: mount_timeout osdkeepalive osd_idle_ttl queue_depth lock_timeout alloc_size;
    switches: share noshare crc nocrc ceph_requires_signatures noceph_requires_signatures
        tcp_nodelay notcp_nodelay cephx_sign_messages nocephx_sign_messages force rw ro
        lock_on_read exclusive notrim abort_on_full;
}

/// Converts the options of a request. They need the user and its key; a response has no key, so it cannot be sent back.
pub(super) fn rbd_options(fields: Fields) -> Result<RbdOptions, ApiError> {
    let options = read(fields);
    if options.name.is_empty() || options.secret.is_empty() {
        return Err(ApiError::invalid("options have no name or no secret"));
    }
    Ok(options)
}

/// Converts the options of a result. Masked secrets are empty.
pub(super) fn rbd_options_fields(options: &RbdOptions, secrets: Secrets) -> Fields {
    let secret = (secrets == Secrets::Shown).then_some(&options.secret);
    without_secret(options).with("secret", secret)
}
