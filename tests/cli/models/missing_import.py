"""It needs a package that is not there."""

import a_package_that_is_not_there
