//! Paths and methods of the platform's table, with the variants that the platform's papers name.

use http::Method;
use strum::VariantArray;

use super::fault::{Code, Fault};

/// A call of the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
pub enum Endpoint {
    /// Checks credentials.
    Verify,
    /// Lists locations.
    Locations,
    /// Lists models.
    Models,
    /// Prepares a location.
    Configure,
    /// Begins to build a machine.
    Provision,
    /// Reports on a build.
    ProvisionStatus,
    /// Restarts a machine.
    Restart,
    /// Gives a machine back.
    Decommission,
    /// Grants an address.
    Allocate,
    /// Gives an address back.
    Release,
    /// The OpenAPI document, which is not the platform's.
    OpenApi,
}

impl Endpoint {
    /// Returns the call of a path below `/v1`, with or without a slash at its end.
    pub fn find(method: &Method, path: &str) -> Result<Self, Fault> {
        let unknown = Fault::new(Code::Uri, "there is no such path, or not with this method");
        let path = path.strip_suffix('/').unwrap_or(path);
        let (route, methods) = match path {
            "/auth/verify" => (Self::Verify, "POST"),
            "/infrastructure/provider/locations" => (Self::Locations, "GET, POST"),
            "/infrastructure/provider/server-models" => (Self::Models, "GET, POST"),
            "/location/configure" => (Self::Configure, "POST"),
            "/infrastructure/server/provision" => (Self::Provision, "POST"),
            "/infrastructure/server/provision-status"
            | "/infrastructure/server/provision-check" => (Self::ProvisionStatus, "GET, POST"),
            "/infrastructure/server/restart" => (Self::Restart, "POST"),
            "/infrastructure/server/decommission" => (Self::Decommission, "POST"),
            "/infrastructure/ip/allocate" => (Self::Allocate, "POST"),
            "/infrastructure/ip/release" => (Self::Release, "POST"),
            "/openapi.json" => (Self::OpenApi, "GET"),
            _ => return Err(unknown),
        };
        if methods.split(", ").any(|it| it == method.as_str()) {
            return Ok(route);
        }
        Err(Fault { allow: Some(methods), ..unknown })
    }

    /// True if the call is answered without credentials, when the catalogue is public.
    pub fn is_listing(self) -> bool {
        matches!(self, Self::Locations | Self::Models)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_is_found_and_other_methods_are_named() {
        let found = |method: Method, path: &str| Endpoint::find(&method, path);
        for path in ["provision-status", "provision-check"] {
            for method in [Method::GET, Method::POST] {
                let path = format!("/infrastructure/server/{path}");
                assert_eq!(found(method.clone(), &path), Ok(Endpoint::ProvisionStatus));
                assert_eq!(found(method, &format!("{path}/")), Ok(Endpoint::ProvisionStatus));
            }
        }
        assert_eq!(
            found(Method::POST, "/infrastructure/provider/locations"),
            Ok(Endpoint::Locations)
        );
        let wrong = found(Method::GET, "/auth/verify").unwrap_err();
        assert_eq!((wrong.code, wrong.allow), (Code::Uri, Some("POST")));
        let wrong = found(Method::PUT, "/infrastructure/provider/server-models").unwrap_err();
        assert_eq!(wrong.allow, Some("GET, POST"));
        for path in
            ["/infrastructure/location/configure", "/", "", "/auth/verify//", "/Auth/verify"]
        {
            let wrong = found(Method::POST, path).unwrap_err();
            assert_eq!((wrong.code, wrong.allow), (Code::Uri, None), "{path}");
        }
    }
}
