//! Who may see and change an image.

use tinwright::image::v1 as pb;
use tinwright::status::Violations;
use tinwright::{Stored as _, TenantName};

use crate::error::Error;

/// True if callers limited to `tenant` may see `image`: their own, the site's, and public ones.
pub(crate) fn is_visible(image: &pb::Image, tenant: Option<&TenantName>) -> bool {
    image.public || image.is_visible_to(tenant)
}

/// Returns what callers limited to `tenant` see of `image`. The source of an image of others is left
/// out: a URL can hold a token in its query.
pub(crate) fn shown(image: pb::Image, tenant: Option<&TenantName>) -> pb::Image {
    match tenant {
        Some(tenant) if tenant.as_str() != image.tenant => pb::Image { source: None, ..image },
        Some(_) | None => image,
    }
}

/// Passes if callers limited to `tenant` may change `image`, which they see.
pub(crate) fn check_owned(image: &pb::Image, tenant: Option<&TenantName>) -> Result<(), Error> {
    match tenant {
        Some(tenant) if tenant.as_str() != image.tenant => Err(Error::NotOwned(image.id.clone())),
        Some(_) | None => Ok(()),
    }
}

/// Gives `image` to the `tenant` of its creator, if there is one. Another tenant is refused.
pub(crate) fn take_tenant(
    image: &mut pb::Image,
    tenant: Option<&TenantName>,
) -> Result<(), Violations> {
    let Some(tenant) = tenant else { return Ok(()) };
    if !image.tenant.is_empty() && image.tenant != tenant.as_str() {
        return Err(Violations::single("image.tenant", "is not the tenant of the caller"));
    }
    image.tenant = tenant.to_string();
    Ok(())
}
