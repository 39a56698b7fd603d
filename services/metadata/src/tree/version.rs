//! The versions of the EC2 tree. They all serve the same, but for the shape of `tags`.

/// Every version EC2 ever had, oldest first, and the word for the newest.
const NAMES: [&str; 29] = [
    "1.0",
    "2007-01-19",
    "2007-03-01",
    "2007-08-29",
    "2007-10-10",
    "2007-12-15",
    "2008-02-01",
    "2008-09-01",
    TINKERBELL,
    "2011-01-01",
    "2011-05-01",
    "2012-01-12",
    "2014-02-25",
    "2014-11-05",
    "2015-10-20",
    "2016-04-19",
    "2016-06-30",
    "2016-09-02",
    "2018-03-28",
    "2018-08-17",
    "2018-09-24",
    "2019-10-01",
    "2020-10-27",
    "2021-01-03",
    "2021-03-23",
    "2021-07-15",
    "2022-09-24",
    "2024-04-11",
    "latest",
];

/// The one version that Tinkerbell's metadata services ever spoke.
const TINKERBELL: &str = "2009-04-04";

/// A version that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(&'static str);

/// Whose words a version speaks where EC2's and Tinkerbell's differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Tinkerbell's, in 2009-04-04.
    Tinkerbell,
    /// Amazon's, in every other.
    Ec2,
}

impl Version {
    /// The version of this name, if it is served.
    pub(super) fn find(name: &str) -> Option<Self> {
        NAMES.into_iter().find(|known| *known == name).map(Self)
    }

    /// All of them, one a line.
    pub(super) fn listing() -> String {
        NAMES.join("\n")
    }

    /// Whose words it speaks.
    pub(super) fn dialect(self) -> Dialect {
        if self.is_tinkerbell() { Dialect::Tinkerbell } else { Dialect::Ec2 }
    }

    /// Whether it is the version Tinkerbell's clients know.
    pub(super) fn is_tinkerbell(self) -> bool {
        self.0 == TINKERBELL
    }
}
