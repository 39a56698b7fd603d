//! Clients and servers of services, by `prost-build`.
//!
//! The code of a call is its types and its path. All calls with one response go through the same
//! code for bytes (`src/client.rs`, `src/server.rs`). Otherwise that would exist once for each call.

use std::fmt::Write as _;

use prost_build::{Method, Service};

use crate::names::snake;

/// Generates the clients and servers of services.
pub(crate) struct ServiceGenerator;

impl prost_build::ServiceGenerator for ServiceGenerator {
    fn generate(&mut self, service: Service, code: &mut String) {
        // A `String` takes all that is written.
        let _ok = write_calls(&service, code)
            .and_then(|()| write_client(&service, code))
            .and_then(|()| write_server(&service, code));
    }
}

/// Writes the implementation of `Call` for each request.
fn write_calls(service: &Service, code: &mut String) -> std::fmt::Result {
    for method in &service.methods {
        let Method { input_type, output_type, .. } = method;
        writeln!(code, "impl crate::client::Call for {input_type} {{")?;
        writeln!(code, "    type Response = {output_type};")?;
        writeln!(code, "    const PATH: &'static str = {:?};", path(service, method))?;
        writeln!(code, "}}")?;
    }
    Ok(())
}

fn write_client(service: &Service, code: &mut String) -> std::fmt::Result {
    let name = format!("{}Client", service.name);
    writeln!(code, "pub mod {} {{", snake(&name))?;
    writeln!(code, "    use crate::client::*;")?;
    service.comments.append_with_indent(1, code);
    writeln!(code, "    #[derive(Debug, Clone)]")?;
    writeln!(code, "    pub struct {name}<T>(Grpc<T>);")?;
    writeln!(code, "    client! {{ {name} }}")?;
    writeln!(code, "    impl<T: GrpcClient> {name}<T> {{")?;
    for method in &service.methods {
        let (input, output) = (nested(&method.input_type), nested(&method.output_type));
        let request = match method.client_streaming {
            false => format!("IntoRequest<{input}>"),
            true => format!("IntoStreamingRequest<Message = {input}>"),
        };
        let response = match method.server_streaming {
            false => output,
            true => format!("Streaming<{output}>"),
        };
        method.comments.append_with_indent(2, code);
        writeln!(code, "        pub async fn {}(", method.name)?;
        writeln!(code, "            &mut self,")?;
        writeln!(code, "            request: impl {request},")?;
        writeln!(code, "        ) -> Result<Response<{response}>, Status> {{")?;
        writeln!(code, "            {}(&mut self.0, request).await", function(method))?;
        writeln!(code, "        }}")?;
    }
    writeln!(code, "    }}\n}}")
}

fn write_server(service: &Service, code: &mut String) -> std::fmt::Result {
    let name = &service.name;
    writeln!(code, "pub mod {}_server {{", snake(name))?;
    writeln!(code, "    use crate::server::*;")?;
    write_trait(service, code)?;
    writeln!(code, "    #[derive(Debug)]")?;
    writeln!(code, "    pub struct {name}Server<T>(Arc<T>, Limits);")?;
    writeln!(code, "    server! {{")?;
    writeln!(
        code,
        "        {name}, {name}Server, \"{}.{}\",",
        service.package, service.proto_name
    )?;
    for method in &service.methods {
        let (path, function) = (path(service, method), function(method));
        writeln!(code, "        {path:?} => {function} {},", method.name)?;
    }
    writeln!(code, "    }}\n}}")
}

/// Writes the trait that a service implements.
fn write_trait(service: &Service, code: &mut String) -> std::fmt::Result {
    service.comments.append_with_indent(1, code);
    writeln!(code, "    pub trait {}: Send + Sync + 'static {{", service.name)?;
    for method in &service.methods {
        let (input, output) = (nested(&method.input_type), nested(&method.output_type));
        let stream = format!("{}Stream", method.proto_name);
        if method.server_streaming {
            writeln!(code, "        /// The responses of `{}`.", method.name)?;
            writeln!(
                code,
                "        type {stream}: Stream<Item = Result<{output}, Status>> + Send + 'static;"
            )?;
        }
        let response = if method.server_streaming { format!("Self::{stream}") } else { output };
        let request = if method.client_streaming { format!("Streaming<{input}>") } else { input };
        method.comments.append_with_indent(2, code);
        writeln!(code, "        fn {}(", method.name)?;
        writeln!(code, "            &self,")?;
        writeln!(code, "            request: Request<{request}>,")?;
        writeln!(
            code,
            "        ) -> impl Future<Output = Result<Response<{response}>, Status>> + Send;"
        )?;
    }
    writeln!(code, "    }}")
}

/// Returns the function for the call, which has the same name in `src/client.rs` and `src/server.rs`.
fn function(method: &Method) -> &'static str {
    match (method.client_streaming, method.server_streaming) {
        (false, false) => "unary",
        (false, true) => "server_streaming",
        (true, _) => "streaming",
    }
}

/// Returns the path of a call in HTTP.
fn path(service: &Service, method: &Method) -> String {
    format!("/{}.{}/{}", service.package, service.proto_name, method.proto_name)
}

/// Returns the type `name` of a package as a module in the package names it.
fn nested(name: &str) -> String {
    match name.starts_with("::") || name.starts_with("()") {
        true => name.to_owned(),
        false => format!("super::{name}"),
    }
}
