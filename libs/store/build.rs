//! Compiles the part of etcd's API that the store speaks.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let set = protox::compile(["rpc.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(set)?;
    Ok(())
}
