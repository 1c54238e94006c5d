"""Reports: what a results file says, for people, for a build server, and as an exit code.

* A report is made from a header and a stream of results; nothing here keeps a million of them, opens a file or prints.
* What a report shows of a claim, a subject or a model's answer is untrusted text: it is escaped by the rules of the
  format it goes into, and what no format may carry is shown as an escape.
"""
