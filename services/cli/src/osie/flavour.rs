//! Flavours of the image: what runs on the machine.

use super::archive::Archive;

/// The purpose of the boot of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Flavour {
    /// Install operating systems: runs the worker
    #[default]
    Install,
    /// Stay, and run system images as containers: runs the node agent
    Node,
}

impl Flavour {
    /// Returns the name of the program that the machine runs. It is in the image's `bin` directory.
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Install => "tinwright-worker",
            Self::Node => "tinwright-node",
        }
    }

    /// Returns what errors call this program.
    pub(super) fn program_noun(self) -> &'static str {
        match self {
            Self::Install => "worker",
            Self::Node => "node agent",
        }
    }

    /// Returns the option of `tinwright osie build` for this program.
    pub(super) fn option(self) -> &'static str {
        match self {
            Self::Install => "--worker",
            Self::Node => "--node-agent",
        }
    }

    /// Returns what the names of the written files have before the architecture. Both flavours fit into one directory, each with the
    /// kernel for its modules.
    pub(super) fn infix(self) -> &'static str {
        match self {
            Self::Install => "",
            Self::Node => "node-",
        }
    }

    /// Adds the scripts that run on the machine, and the files that they need.
    pub(super) fn add_scripts(self, tree: &mut Archive) {
        tree.program("etc/udhcpc.sh", include_str!("udhcpc.sh"));
        tree.file("etc/setup.sh", include_str!("setup.sh"));
        match self {
            Self::Install => tree.program("init", include_str!("init.sh")),
            Self::Node => {
                tree.program("init", include_str!("move.sh"));
                tree.program("etc/node.sh", include_str!("node.sh"));
                tree.file("etc/iscsi/iscsid.conf", include_str!("iscsid.conf"));
                tree.directory("var/lib");
                tree.link("var/run", "../run");
            }
        }
    }
}
