//! The versions of the EC2 tree. They all serve the same, except for the rows of one dialect.

/// The listing of `/`: every version that EC2 had, oldest first, and `latest`.
pub(super) const LISTING: &str = "\
    1.0\n2007-01-19\n2007-03-01\n2007-08-29\n2007-10-10\n2007-12-15\n2008-02-01\n2008-09-01\n\
    2009-04-04\n2011-01-01\n2011-05-01\n2012-01-12\n2014-02-25\n2014-11-05\n2015-10-20\n2016-04-19\n\
    2016-06-30\n2016-09-02\n2018-03-28\n2018-08-17\n2018-09-24\n2019-10-01\n2020-10-27\n2021-01-03\n\
    2021-03-23\n2021-07-15\n2022-09-24\n2024-04-11\nlatest";
/// The only version that Tinkerbell's metadata services have.
const TINKERBELL: &str = "2009-04-04";

/// The client family that a version is compatible with, where EC2's and Tinkerbell's trees differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Tinkerbell's, in 2009-04-04.
    Tinkerbell,
    /// Amazon's, in all other versions.
    Ec2,
}

impl Dialect {
    /// Returns the dialect of the version `name`, if there is such a version.
    pub(super) fn of_version(name: &str) -> Option<Self> {
        let dialect = if name == TINKERBELL { Self::Tinkerbell } else { Self::Ec2 };
        LISTING.lines().any(|version| version == name).then_some(dialect)
    }
}
