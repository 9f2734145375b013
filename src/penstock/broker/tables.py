"""Field tables under the kernel's name for them; they are `penstock.core.tables`."""

from penstock.core.tables import decode_array as decode_array
from penstock.core.tables import decode_table as decode_table
from penstock.core.tables import encode_array as encode_array
from penstock.core.tables import encode_table as encode_table
