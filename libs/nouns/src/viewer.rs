//! The caller of a call that reads.

use runtime::access;
use tinwright::TenantName;
use tinwright::common::v1::View;
use tonic::{Request, Status};

/// A caller, and what it may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Viewer {
    /// The tenant to whose objects the caller is limited. None: it may see all.
    pub tenant: Option<TenantName>,
    /// The view of objects.
    pub view: View,
}

impl Viewer {
    /// Returns the caller of `request`, who wants the view `wanted`. Fails with `PERMISSION_DENIED`
    /// if the caller may not have that view.
    pub fn of<T>(request: &Request<T>, wanted: View) -> Result<Self, Status> {
        let view = access::effective_view(request, wanted)?;
        Ok(Self { tenant: access::tenant(request).cloned(), view })
    }
}
