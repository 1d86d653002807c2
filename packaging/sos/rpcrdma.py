# SPDX-License-Identifier: GPL-2.0
"""A plug-in of sos: what a report of a defect of NFS over RDMA needs.

The commands leave out what may be a key. Other plug-ins copy files in which an administrator may
have set one. It is taken out of these in the archive, which is why this one copies them too.
"""

from sos.report.plugins import IndependentPlugin, Plugin, SoSPredicate


class RpcRdma(Plugin, IndependentPlugin):
    """Runs the tools of the package rpcrdma-tools."""

    short_desc = 'NFS over RDMA'
    plugin_name = 'rpcrdma'
    profiles = ('network', 'nfs', 'storage')
    commands = ('rpcrdma-report',)

    #: Where a parameter of a module may be set.
    may_have_keys = (
        '/etc/modprobe.conf',
        '/etc/modprobe.d',
        '/lib/modprobe.d',
        '/proc/cmdline',
        '/run/modprobe.d',
        '/usr/lib/modprobe.d',
        '/usr/local/lib/modprobe.d',
    )

    def setup(self):
        """Says what is to be collected."""
        # The command rdma would have ib_core loaded, and sos changes nothing.
        is_loaded = SoSPredicate(self, kmods=['ib_core'])
        self.add_cmd_output(['rpcrdma-report', 'rpcrdma-top --once --json'], pred=is_loaded)
        self.add_copy_spec(list(self.may_have_keys))

    def postproc(self):
        """Takes keys out of what was copied. The kernel takes - and _ for the same in a name."""
        self.do_path_regex_sub('|'.join(self.may_have_keys),
                               r'(host[-_]auth[-_]key\s*=\s*)("[^"]*"|[^\s"]+)', r'\1********')
