"""The page and the JSON API: thin faces over the library's functions, made with FastAPI.

    batchline serve                     # the page on http://127.0.0.1:8765
    uvicorn --factory batchline.web.app:create

`question` is what is asked, `reply` what is answered, `app` joins them to addresses, `guard` keeps requests in bounds,
`files` holds the page. FastAPI takes most of a second to import, so nothing else imports this package.
"""
