"""What fuzzers put together to requests and responses in XML and MIME."""

XML_WORDS = (
    *("<request ", "<response ", "</request>", "</response>", "<dataset>", "</dataset>", "/>"),
    *('id="a" ', 'type="fake" ', 'type="build_models" ', 'type="predict_models" ', 'name="x" '),
    *('duration="1" ', 'interval="0.5" ', 'progress="0.5" ', 'start="', 'end="', 'error="', "&lt;"),
    *(
        "<column ",
        "</column>",
        "<value>",
        "</value>",
        "<value ",
        "<agings>",
        "</agings>",
        "<aging ",
    ),
    *(
        "<trial>",
        "</trial>",
        "<result ",
        "</result>",
        'key="1.5" ',
        ">1.5<",
        "<!DOCTYPE x>",
        "&#0;",
    ),
    *('<?xml version="1.0" encoding="UTF-8"?>', "]]>", "<![CDATA[", "2026-05-31T12:00:00Z", "NaN"),
    *("1e999", "-1", "é", '"', ">", "9" * 30, "\r\n", "\r\n--x--", "base64"),
    "Content-Type: multipart/related; boundary=x\r\n\r\n--x\r\n",
)
