"""How requests and responses look on the wire: XML and MIME as the Ichnaea clients have them, JSON.

`read_request` and `read_response` take any of them; what a message says of itself is not trusted,
because those clients mislabel theirs.
"""

from penstock.jobs.forms.reading import Form, read_request, read_response
from penstock.jobs.forms.writing import Written, write_request, write_response

__all__ = ["Form", "Written", "read_request", "read_response", "write_request", "write_response"]
