//! Paths and methods of the platform's table, with the variants that the platform's papers name.

use http::Method;

use super::fault::{Code, Fault};

/// A call of the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The methods of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Methods {
    Get,
    Post,
    GetOrPost,
}

impl Methods {
    fn allows(self, method: &Method) -> bool {
        match self {
            Self::Get => method == Method::GET,
            Self::Post => method == Method::POST,
            Self::GetOrPost => method == Method::GET || method == Method::POST,
        }
    }

    fn header(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::GetOrPost => "GET, POST",
        }
    }
}

impl Endpoint {
    /// All calls of the platform.
    pub const ALL: [Self; 10] = [
        Self::Verify,
        Self::Locations,
        Self::Models,
        Self::Configure,
        Self::Provision,
        Self::ProvisionStatus,
        Self::Restart,
        Self::Decommission,
        Self::Allocate,
        Self::Release,
    ];

    /// Returns the call of a path below `/v1`, with or without a slash at its end.
    pub fn find(method: &Method, path: &str) -> Result<Self, Fault> {
        let unknown = Fault::new(Code::Uri, "there is no such path, or not with this method");
        let path = path.strip_suffix('/').unwrap_or(path);
        let (route, methods) = match path {
            "/auth/verify" => (Self::Verify, Methods::Post),
            "/infrastructure/provider/locations" => (Self::Locations, Methods::GetOrPost),
            "/infrastructure/provider/server-models" => (Self::Models, Methods::GetOrPost),
            "/location/configure" => (Self::Configure, Methods::Post),
            "/infrastructure/server/provision" => (Self::Provision, Methods::Post),
            "/infrastructure/server/provision-status"
            | "/infrastructure/server/provision-check" => {
                (Self::ProvisionStatus, Methods::GetOrPost)
            }
            "/infrastructure/server/restart" => (Self::Restart, Methods::Post),
            "/infrastructure/server/decommission" => (Self::Decommission, Methods::Post),
            "/infrastructure/ip/allocate" => (Self::Allocate, Methods::Post),
            "/infrastructure/ip/release" => (Self::Release, Methods::Post),
            "/openapi.json" => (Self::OpenApi, Methods::Get),
            _ => return Err(unknown),
        };
        if methods.allows(method) {
            return Ok(route);
        }
        Err(Fault { allow: Some(methods.header()), ..unknown })
    }

    /// True if the call is answered without credentials, when the catalogue is public.
    pub fn is_listing(self) -> bool {
        match self {
            Self::Locations | Self::Models => true,
            Self::Verify
            | Self::Configure
            | Self::Provision
            | Self::ProvisionStatus
            | Self::Restart
            | Self::Decommission
            | Self::Allocate
            | Self::Release
            | Self::OpenApi => false,
        }
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
