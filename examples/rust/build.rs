//! Stubs for the story, from what `buf build` wrote of our protos: no protoc is needed.

use std::{env, error::Error, fs};

use prost::Message;
use prost_types::FileDescriptorSet;

fn main() -> Result<(), Box<dyn Error>> {
    let protos = env::var("TENURE_DESCRIPTORS")?;
    println!("cargo::rerun-if-env-changed=TENURE_DESCRIPTORS");
    println!("cargo::rerun-if-changed={protos}");
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false) // its `connect` is the name of a call of ours
        .include_file("stubs.rs")
        .compile_fds(FileDescriptorSet::decode(fs::read(protos)?.as_slice())?)?;
    Ok(())
}
